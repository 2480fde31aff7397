//===- TilePeaks.cpp - Peaks of a program at several tiles ----------------===//

#include "TilePeaks.h"

using namespace mlir;
using namespace koila;

const PeakMemoryAnalysis &TiledPeaks::analyze() {
  std::vector<bool> areSingle;
  for (auto [phase, tile] :
       llvm::zip_equal(tiled.getPhases(), tiled.getTiles()))
    areSingle.push_back(tile == phase.least);
  std::unique_ptr<PeakMemoryAnalysis> &entry = analyses[areSingle];
  if (!entry)
    entry = std::make_unique<PeakMemoryAnalysis>(function, options);
  return *entry;
}

std::optional<int64_t>
TiledPeaks::getPeakUpTo(StringRef symbol, int64_t batch,
                        SmallVectorImpl<int64_t> *phases) {
  llvm::DenseMap<Operation *, int64_t> loops;
  auto peak =
      koila::getPeakUpTo(analyze(), symbol, batch, tiled.getTiles(), &loops);
  if (phases) {
    phases->clear();
    for (const PhaseLoops &phase : tiled.getPhases())
      phases->push_back(loops.lookup(phase.loop));
  }
  return peak;
}
