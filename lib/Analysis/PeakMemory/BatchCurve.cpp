//===- BatchCurve.cpp - The peak as a function of the batch ---------------===//

#include "koila/Analysis/BatchCurve.h"
#include <algorithm>
#include <limits>

using namespace koila;

static __int128 evaluateWide(const std::array<int64_t, 3> &coefficients,
                             int64_t batch) {
  __int128 value = 0;
  for (auto it = coefficients.rbegin(); it != coefficients.rend(); ++it)
    value = value * batch + *it;
  return value;
}

int64_t BatchPiece::evaluate(int64_t batch) const {
  __int128 value = evaluateWide(coefficients, batch);
  return static_cast<int64_t>(
      std::clamp<__int128>(value, std::numeric_limits<int64_t>::min(),
                           std::numeric_limits<int64_t>::max()));
}

/// The polynomial of least degree through figures at `from`, `from` + 1, …;
/// none if it has no integer coefficients.
static std::optional<std::array<int64_t, 3>>
interpolate(int64_t from, const int64_t *figures, size_t count) {
  __int128 first = figures[0];
  __int128 slope = count > 1 ? __int128(figures[1]) - first : 0;
  __int128 bend =
      count > 2 ? __int128(figures[2]) - 2 * __int128(figures[1]) + first : 0;
  if (bend % 2 != 0)
    return std::nullopt;
  // first + slope x + bend/2 x(x-1), with x = B - from.
  __int128 c2 = bend / 2, start = from;
  __int128 c1 = slope - c2 - 2 * c2 * start;
  __int128 c0 = first - slope * start + c2 * start * (start + 1);
  std::array<int64_t, 3> result;
  for (auto [to, wide] :
       {std::pair(&result[0], c0), {&result[1], c1}, {&result[2], c2}}) {
    *to = static_cast<int64_t>(wide);
    if (*to != wide)
      return std::nullopt;
  }
  return result;
}

/// How many of `figures`, from the first on, one polynomial of `degree` meets.
static size_t fit(int64_t from, const int64_t *figures, size_t count,
                  size_t degree, BatchPiece &piece) {
  auto found = interpolate(from, figures, std::min(count, degree + 1));
  if (!found)
    return 0;
  size_t length = 0;
  while (length < count &&
         evaluateWide(*found, from + static_cast<int64_t>(length)) ==
             figures[length])
    ++length;
  piece.from = from;
  piece.to = from + static_cast<int64_t>(length) - 1;
  piece.coefficients = *found;
  return length;
}

std::vector<BatchPiece> koila::computeBatchPieces(PeakFunction peak,
                                                  int64_t from, int64_t to) {
  std::vector<int64_t> figures;
  for (int64_t batch = from; batch <= to; ++batch) {
    std::optional<int64_t> bytes = peak(batch);
    if (!bytes)
      break;
    figures.push_back(*bytes);
  }
  std::vector<BatchPiece> pieces;
  for (size_t start = 0; start < figures.size();) {
    // The longest; of equal ones the least degree. A curve that meets no more
    // figures than it was made of says nothing: a line through two, then.
    BatchPiece best;
    size_t longest = 0;
    for (size_t degree = 0; degree < 3; ++degree) {
      BatchPiece piece;
      size_t length = fit(from + static_cast<int64_t>(start), &figures[start],
                          figures.size() - start, degree, piece);
      if (length > longest && (degree < 2 || length > degree + 1)) {
        best = piece;
        longest = length;
      }
    }
    pieces.push_back(best);
    start += longest;
  }
  return pieces;
}

std::optional<BatchLimit> koila::findMaxBatch(PeakFunction peak,
                                              int64_t budget) {
  constexpr int64_t kMost = int64_t(1) << 40;
  int64_t fits = 0, exceeds = 1;
  for (;; exceeds *= 2) {
    std::optional<int64_t> bytes = peak(exceeds);
    if (!bytes)
      return std::nullopt;
    if (*bytes > budget)
      break;
    fits = exceeds;
    if (exceeds >= kMost)
      return BatchLimit{fits, /*isUnbounded=*/true};
  }
  while (exceeds - fits > 1) {
    int64_t middle = fits + (exceeds - fits) / 2;
    std::optional<int64_t> bytes = peak(middle);
    if (!bytes)
      return std::nullopt;
    (*bytes > budget ? exceeds : fits) = middle;
  }
  return BatchLimit{fits, /*isUnbounded=*/false};
}
