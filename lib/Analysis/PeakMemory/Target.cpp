//===- Target.cpp - The machine that an analysis is for -------------------===//

#include "koila/Analysis/Target.h"
#include "koila/Analysis/PeakMemory.h"
#include "koila/Device/CpuIsa.h"
#include "mlir/Dialect/DLTI/DLTI.h"
#include <unistd.h>

using namespace mlir;
using namespace koila;

namespace {
/// What a module says, piece by piece.
struct Described {
  std::string device, isa;
  std::optional<int64_t> threads, l1Bytes, l2Bytes;
};
} // namespace

/// Zero and an empty name say nothing.
static Described readAttribute(TargetAttr target) {
  Described said;
  said.device = target.getDevice();
  said.isa = target.getIsa();
  auto read = [](int64_t value) {
    return value > 0 ? std::optional(value) : std::nullopt;
  };
  said.threads = read(target.getThreads());
  said.l1Bytes = read(target.getL1Bytes());
  said.l2Bytes = read(target.getL2Bytes());
  return said;
}

/// The attribute of `op` or of the nearest operation around it.
template <typename AttrT>
static AttrT findAround(Operation *op, StringRef name) {
  for (; op; op = op->getParentOp())
    if (auto attr = op->getAttrOfType<AttrT>(name))
      return attr;
  return {};
}

/// Adds what a DLTI spec says of its device, which is named in any case. Fails,
/// after an error, on a value of another type.
static LogicalResult readDLTI(Operation *op, Described &said) {
  auto system = findAround<TargetSystemSpecInterface>(
      op, DLTIDialect::kTargetSystemDescAttrName);
  if (!system)
    return success();
  for (DataLayoutEntryInterface entry : system.getEntries()) {
    auto name = llvm::dyn_cast_if_present<StringAttr>(entry.getKey());
    auto spec = dyn_cast<TargetDeviceSpecInterface>(entry.getValue());
    if (!name || !spec || !name.getValue().equals_insensitive(said.device))
      continue;
    auto read = [&](StringRef key) -> Attribute {
      DataLayoutEntryInterface value =
          spec.getSpecForIdentifier(StringAttr::get(op->getContext(), key));
      return value ? value.getValue() : Attribute();
    };
    auto readNumber = [&](StringRef key, std::optional<int64_t> &number) {
      Attribute value = read(key);
      auto integer = dyn_cast_or_null<IntegerAttr>(value);
      if (value && (!integer || integer.getValue().getSignificantBits() > 64))
        return LogicalResult(op->emitError()
                             << "'" << key << "' of the DLTI spec of '"
                             << name.getValue() << "' is no integer");
      if (integer && !number)
        number = integer.getValue().getSExtValue();
      return success();
    };
    Attribute isa = read("koila.isa");
    if (isa && !isa_and_nonnull<StringAttr>(isa))
      return op->emitError() << "'koila.isa' of the DLTI spec of '"
                             << name.getValue() << "' is no string";
    if (isa && said.isa.empty())
      said.isa = cast<StringAttr>(isa).getValue();
    return success(succeeded(readNumber("koila.threads", said.threads)) &&
                   succeeded(readNumber("koila.l1_bytes", said.l1Bytes)) &&
                   succeeded(readNumber("koila.l2_bytes", said.l2Bytes)));
  }
  return success();
}

TargetAttr koila::getTarget(Operation *op, const PeakMemoryOptions &options) {
  Described said;
  if (auto target = findAround<TargetAttr>(op, KoilaDialect::kTargetAttr))
    said = readAttribute(target);
  // It is of another device.
  if (!options.device.empty() && options.device != said.device)
    said = {};
  if (!options.device.empty())
    said.device = options.device;
  else if (said.device.empty())
    said.device = "cpu";
  if (failed(readDLTI(op, said)))
    return {};
  bool isHere = options.isa.empty() && said.isa.empty() && said.device == "cpu";
  int64_t l1Bytes = 0, l2Bytes = 0;
  if (isHere) {
    l1Bytes = std::max<long>(sysconf(_SC_LEVEL1_DCACHE_SIZE), 0);
    l2Bytes = std::max<long>(sysconf(_SC_LEVEL2_CACHE_SIZE), 0);
  }
  if (options.isa.empty()) {
    l1Bytes = said.l1Bytes.value_or(l1Bytes);
    l2Bytes = said.l2Bytes.value_or(l2Bytes);
  }
  std::string isa = !options.isa.empty() ? options.isa
                    : isHere             ? getCpuIsa()
                                         : said.isa;
  int64_t threads = options.threads;
  if (threads <= 0)
    threads = said.threads ? *said.threads : getDefaultThreads();
  return TargetAttr::getChecked([&] { return op->emitError(); },
                                op->getContext(), StringRef(said.device),
                                threads, StringRef(isa), l1Bytes, l2Bytes);
}
