//===- TileTable.cpp - One program, any tile ------------------------------===//

#include "TileTable.h"
#include "koila/Dialect/Koila/IR/Koila.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace koila;

//===----------------------------------------------------------------------===//
// Rows
//===----------------------------------------------------------------------===//

bool koila::growTiles(TiledFunction &tiled, TiledPeaks &peaks,
                      ArrayRef<TilePeak> known, StringRef symbol, int64_t batch,
                      int64_t budget, int mostTrials) {
  size_t count = tiled.getPhases().size();
  int64_t common = tiled.getTile();
  bool grows = false;
  for (size_t phase = 0; phase < count; ++phase)
    for (const TilePeak &row : known)
      if (row.tile > common && row.tile < batch && row.phases[phase] > 0 &&
          row.phases[phase] <= budget) {
        tiled.setTile(phase, row.tile);
        grows = true;
        break;
      }
  SmallVector<int64_t> found;
  auto isWithin = [&] {
    auto peak = peaks.getPeakUpTo(symbol, batch, &found);
    return peak && *peak <= budget;
  };
  for (int trial = 0; grows && !isWithin(); ++trial) {
    bool shrinks = false;
    for (size_t phase = 0; phase < count; ++phase)
      if (int64_t tile = tiled.getTiles()[phase];
          found[phase] > budget && tile > common) {
        tiled.setTile(phase, tile / 2);
        shrinks = true;
      }
    if (shrinks && trial < mostTrials)
      continue;
    tiled.setTile(common);
    return false;
  }
  return grows;
}

std::vector<TileRow> koila::tabulateTiles(TiledFunction &tiled,
                                          TiledPeaks &peaks,
                                          ArrayRef<TilePeak> known,
                                          StringRef symbol, int64_t batch,
                                          bool grows) {
  SmallVector<int64_t> chosen(tiled.getTiles());
  int64_t chosenTile = tiled.getTile();
  auto restore = [&] {
    for (auto [phase, tile] : llvm::enumerate(chosen))
      tiled.setTile(phase, tile);
  };
  llvm::StringMap<int64_t> symbols;
  symbols[symbol] = batch;
  std::vector<TileRow> rows;
  for (const TilePeak &row : llvm::reverse(known)) {
    int64_t budget = row.peak;
    if (row.tile == chosenTile) {
      restore();
      budget = peaks.getPeakUpTo(symbol, batch).value_or(budget);
    } else {
      tiled.setTile(row.tile);
      // A phase whose loop runs once is another program to the analysis.
      bool isSingle =
          llvm::any_of(tiled.getPhases(), [&](const PhaseLoops &phase) {
            return phase.least >= row.tile;
          });
      constexpr int kMostTrials = 4;
      if (grows && !isSingle &&
          growTiles(tiled, peaks, known, symbol, batch, budget, kMostTrials))
        budget = peaks.getPeakUpTo(symbol, batch).value_or(budget);
    }
    int64_t peak = peaks.analyze().evaluate(symbols).value_or(budget);
    rows.push_back({row.tile, llvm::to_vector(tiled.getTiles()), peak, budget});
  }
  restore();
  return rows;
}

llvm::json::Array koila::toJSON(ArrayRef<TileRow> rows) {
  llvm::json::Array list;
  for (const TileRow &row : rows)
    list.push_back(llvm::json::Object{{"tile", row.tile},
                                      {"phases", llvm::json::Array(row.phases)},
                                      {"peak_bytes", row.peakBytes},
                                      {"budget_bytes", row.budgetBytes}});
  return list;
}

//===----------------------------------------------------------------------===//
// Loops
//===----------------------------------------------------------------------===//

void koila::markLoops(const TiledFunction &tiled, ArrayRef<TileRow> rows) {
  for (auto [index, phase] : llvm::enumerate(tiled.getPhases())) {
    SmallVector<int64_t> table{phase.least};
    for (const TileRow &row : rows) {
      // Where no phase can have smaller ones, they have these.
      table.resize(llvm::Log2_64(row.tile), row.phases[index]);
      table.push_back(row.phases[index]);
    }
    phase.loop->setAttr(
        kTilesAttr, DenseI64ArrayAttr::get(phase.loop->getContext(), table));
  }
}

int64_t LoopTiles::lookup(int64_t common) const {
  size_t index = std::min<size_t>(llvm::Log2_64(common), table.size() - 1);
  return std::max(common, table[index]);
}

/// What tiling makes: the upper bound is how many sizes tiles have, and what is
/// carried last is the size.
std::optional<LoopTiles> koila::getLoopTiles(Operation *op) {
  auto table = op->getAttrOfType<DenseI64ArrayAttr>(kTilesAttr);
  auto loop = dyn_cast<scf::ForOp>(op);
  if (!table || table.empty() || !loop || loop.getInitArgs().empty())
    return std::nullopt;
  auto tile = getConstantIntValue(loop.getInitArgs().back()),
       sizes = getConstantIntValue(loop.getUpperBound());
  auto isSize = [](int64_t number) {
    return number > 0 && llvm::isPowerOf2_64(number);
  };
  if (!tile || !sizes || !isSize(*tile) || *sizes < 1 || *sizes > 63 ||
      !llvm::all_of(table.asArrayRef(), isSize))
    return std::nullopt;
  int64_t least = *tile >> (*sizes - 1);
  if (least < 1)
    return std::nullopt;
  return LoopTiles{table.asArrayRef(), *tile, least};
}

std::optional<int64_t> koila::getLargestTile(FunctionOpInterface function) {
  std::optional<int64_t> largest;
  for (auto loop : function.getFunctionBody().getOps<scf::ForOp>())
    if (std::optional<LoopTiles> tiles = getLoopTiles(loop);
        tiles && tiles->table.size() > 1)
      largest =
          std::max(largest.value_or(1),
                   int64_t(1) << std::min<size_t>(tiles->table.size() - 1, 62));
  auto tiled =
      function->getAttrOfType<DictionaryAttr>(KoilaDialect::kTiledAttr);
  auto tile = tiled ? tiled.getAs<IntegerAttr>("tile") : IntegerAttr();
  if (largest && tile)
    largest = std::max(*largest, tile.getInt());
  return largest;
}

LogicalResult koila::setLoopTiles(FunctionOpInterface function, int64_t tile) {
  auto tiled =
      function->getAttrOfType<DictionaryAttr>(KoilaDialect::kTiledAttr);
  if (!tiled || tile < 1 || !llvm::isPowerOf2_64(tile))
    return failure();
  for (auto loop : function.getFunctionBody().getOps<scf::ForOp>()) {
    if (!loop->hasAttr(kTilesAttr))
      continue;
    std::optional<LoopTiles> tiles = getLoopTiles(loop);
    if (!tiles)
      return failure();
    // Loops may share a constant.
    OpBuilder builder(loop);
    auto makeIndex = [&](int64_t number) -> Value {
      return arith::ConstantIndexOp::create(builder, loop.getLoc(), number);
    };
    int64_t wanted = std::max(tiles->lookup(tile), tiles->least);
    loop.getInitArgsMutable()
        .slice(loop.getInitArgs().size() - 1, 1)
        .assign(makeIndex(wanted));
    loop.setUpperBound(makeIndex(static_cast<int64_t>(
        llvm::Log2_64(wanted) - llvm::Log2_64(tiles->least) + 1)));
  }
  NamedAttrList entries(tiled);
  entries.set("tile", IntegerAttr::get(
                          IntegerType::get(function->getContext(), 64), tile));
  function->setAttr(KoilaDialect::kTiledAttr,
                    entries.getDictionary(function->getContext()));
  return success();
}
