//===- CostTable.cpp - How long kernels take ------------------------------===//

#include "koila/KernelModels/CostTable.h"
#include "llvm/ADT/Twine.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/MemoryBuffer.h"

using namespace koila;
using llvm::StringRef;

double CostTable::getOperation(KernelFamily family) const {
  switch (family) {
  case KernelFamily::Product:
    return product;
  case KernelFamily::Convolution:
    return convolution;
  case KernelFamily::DepthwiseConvolution:
    return depthwise;
  case KernelFamily::Pooling:
    return pooling;
  }
  llvm_unreachable("unknown family of kernels");
}

const CostTable &CostTable::getShipped() {
  // Measured by `koila bench --calibrate --threads=1` on a server with AVX-512.
  static const CostTable table{22.7, 19.5, 92.6, 3300, 18.4, 1.24e6, ""};
  return table;
}

/// Reads one time; fails unless it is one.
static bool readTime(const llvm::json::Object &times, StringRef key,
                     double &time, llvm::json::Path path) {
  // An hour: no kernel takes so long for one of anything.
  constexpr double kMost = 3.6e15;
  auto found = times.getNumber(key);
  if (!found || !(*found > 0) || *found > kMost) {
    path.field(key).report("expected a number of picoseconds, above 0");
    return false;
  }
  time = *found;
  return true;
}

static bool read(const llvm::json::Value &value, CostTable &table,
                 llvm::json::Path path) {
  const llvm::json::Object *object = value.getAsObject();
  const llvm::json::Object *times =
      object ? object->getObject("picoseconds") : nullptr;
  if (!times) {
    path.report("expected an object with 'schema', 'machine' and "
                "'picoseconds'");
    return false;
  }
  if (object->getInteger("schema") != 1) {
    path.field("schema").report("expected 1, the schema that koila knows");
    return false;
  }
  auto machine = object->getString("machine");
  if (!machine || machine->empty()) {
    path.field("machine").report("expected what it was measured on");
    return false;
  }
  table.machine = machine->str();
  llvm::json::Path within = path.field("picoseconds");
  return readTime(*times, "product", table.product, within) &&
         readTime(*times, "convolution", table.convolution, within) &&
         readTime(*times, "depthwise_convolution", table.depthwise, within) &&
         readTime(*times, "pooling", table.pooling, within) &&
         readTime(*times, "byte", table.byte, within) &&
         readTime(*times, "call", table.call, within);
}

llvm::Expected<CostTable> CostTable::parse(StringRef json) {
  auto value = llvm::json::parse(json);
  if (!value)
    return value.takeError();
  llvm::json::Path::Root root("table");
  CostTable table = getShipped();
  if (!read(*value, table, root))
    return root.getError();
  return table;
}

llvm::Expected<CostTable> CostTable::load(StringRef path) {
  auto buffer = llvm::MemoryBuffer::getFile(path, /*IsText=*/true);
  if (!buffer)
    return llvm::createStringError(buffer.getError(),
                                   "cannot read '" + path +
                                       "': " + buffer.getError().message());
  auto table = parse((*buffer)->getBuffer());
  if (!table)
    return llvm::createStringError("'" + path + "' is no table of times: " +
                                   llvm::toString(table.takeError()));
  return table;
}
