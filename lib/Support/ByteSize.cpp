//===- ByteSize.cpp - Sizes in bytes, read and printed --------------------===//

#include "koila/Support/ByteSize.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSwitch.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/MathExtras.h"
#include "llvm/Support/raw_ostream.h"
#include <limits>

using namespace koila;
using llvm::StringRef;

static constexpr llvm::StringLiteral kForms =
    "write a number with an optional unit, for example 512, 64KiB, 1.5GiB or "
    "2GB";

/// Bytes of a unit in lower case; 0 if it is none.
static uint64_t getUnit(StringRef unit) {
  return llvm::StringSwitch<uint64_t>(unit)
      .Cases({"", "b", "byte", "bytes"}, 1)
      .Case("kib", 1ull << 10)
      .Case("mib", 1ull << 20)
      .Case("gib", 1ull << 30)
      .Case("tib", 1ull << 40)
      .Case("kb", 1000ull)
      .Case("mb", 1000ull * 1000)
      .Case("gb", 1000ull * 1000 * 1000)
      .Case("tb", 1000ull * 1000 * 1000 * 1000)
      .Default(0);
}

std::optional<int64_t> koila::parseByteSize(StringRef text,
                                            std::string &error) {
  auto fail = [&](const llvm::Twine &reason) {
    error = ("'" + text + "': " + reason).str();
    return std::nullopt;
  };
  StringRef rest = text.trim();
  if (rest.equals_insensitive("auto"))
    return fail("a number of bytes is wanted here, for example 6GiB");
  if (rest.starts_with("-"))
    return fail("a size is not negative");

  StringRef digits = rest.take_while(llvm::isDigit);
  rest = rest.drop_front(digits.size());
  StringRef decimals;
  if (rest.consume_front(".")) {
    decimals = rest.take_while(llvm::isDigit);
    rest = rest.drop_front(decimals.size());
    if (decimals.empty())
      return fail(llvm::Twine("expected digits after '.'; ") + kForms);
  }
  if (digits.empty())
    return fail(kForms);
  std::string unitName = rest.trim().lower();
  uint64_t unit = getUnit(unitName);
  if (unit == 0) {
    // Gigabyte or gibibyte: 7 % apart, so no guess.
    if (StringRef("kmgt").contains(unitName) && unitName.size() == 1)
      return fail("the unit '" + rest.trim() + "' is ambiguous; write " +
                  rest.trim().upper() + "iB for powers of 1024 or " +
                  rest.trim().upper() + "B for powers of 1000");
    return fail("unknown unit '" + rest.trim() +
                "'; known: KiB, MiB, GiB, "
                "TiB, KB, MB, GB, TB");
  }
  if (unit == 1 && !decimals.empty())
    return fail("is not a whole number of bytes; give a unit, for example " +
                llvm::Twine(digits) + "." + decimals + "MiB");

  uint64_t whole = 0;
  bool tooLarge = digits.getAsInteger(10, whole), overflow = false;
  uint64_t total = llvm::SaturatingMultiply(whole, unit, &overflow);
  // Digit by digit from the right, so that 0.1GiB is what it says and not its
  // double; dropping the remainder at each step does not change the floor.
  uint64_t fraction = 0;
  for (char digit : llvm::reverse(decimals))
    fraction = (static_cast<uint64_t>(digit - '0') * unit + fraction) / 10;
  overflow |=
      tooLarge ||
      total >
          static_cast<uint64_t>(std::numeric_limits<int64_t>::max()) - fraction;
  if (overflow)
    return fail("is more bytes than fit in 63 bits");
  return static_cast<int64_t>(total + fraction);
}

std::string koila::formatBytesShort(int64_t bytes) {
  std::string text;
  llvm::raw_string_ostream os(text);
  double magnitude = static_cast<double>(bytes < 0 ? -bytes : bytes);
  if (magnitude < 1024.0) {
    os << bytes << (bytes == 1 ? " byte" : " bytes");
    return text;
  }
  const char *const units[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  unsigned unit = 0;
  magnitude /= 1024.0;
  // 1023.999 MiB prints as 1.00 GiB, not as 1024.00 MiB.
  while (magnitude >= 1023.995 && unit + 1 < std::size(units)) {
    magnitude /= 1024.0;
    ++unit;
  }
  os << (bytes < 0 ? "-" : "") << llvm::format("%.2f", magnitude) << ' '
     << units[unit];
  return text;
}

std::string koila::formatBytes(int64_t bytes) {
  std::string text = formatBytesShort(bytes);
  if (bytes < 1024 && bytes > -1024)
    return text;
  std::string digits = std::to_string(bytes);
  size_t first = digits[0] == '-' ? 1 : 0;
  for (size_t at = digits.size(); at > first + 3;) {
    at -= 3;
    digits.insert(at, ",");
  }
  return text + " (" + digits + " bytes)";
}
