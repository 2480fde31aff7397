//===- KoilaDialect.cpp - The koila dialect -------------------------------===//

#include "Rules/DataExtents.h"
#include "koila/Dialect/Koila/IR/Koila.h"
#include "koila/ExternalModels/ExternalModels.h"
#include "mlir/Bytecode/BytecodeImplementation.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/DialectImplementation.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace koila;

#include "koila/Dialect/Koila/IR/KoilaDialect.cpp.inc"
#include "koila/Dialect/Koila/IR/KoilaEnums.cpp.inc"

#define GET_ATTRDEF_CLASSES
#include "koila/Dialect/Koila/IR/KoilaAttributes.cpp.inc"
#define GET_TYPEDEF_CLASSES
#include "koila/Dialect/Koila/IR/KoilaTypes.cpp.inc"

namespace {
/// Writes and checks the dialect version in bytecode.
struct KoilaBytecodeInterface : public BytecodeDialectInterface {
  explicit KoilaBytecodeInterface(Dialect *dialect)
      : BytecodeDialectInterface(dialect) {}

  struct Version : public DialectVersion {
    explicit Version(uint64_t number) : number(number) {}
    uint64_t number;
  };

  void writeVersion(DialectBytecodeWriter &writer) const override {
    writer.writeVarInt(KoilaDialect::kBytecodeVersion);
  }
  std::unique_ptr<DialectVersion>
  readVersion(DialectBytecodeReader &reader) const override {
    uint64_t number;
    if (failed(reader.readVarInt(number)))
      return nullptr;
    if (number > KoilaDialect::kBytecodeVersion) {
      reader.emitError() << "koila bytecode version " << number
                         << " is newer than this koila, which reads up to "
                         << KoilaDialect::kBytecodeVersion
                         << "; update koila or re-write the file as text";
      return nullptr;
    }
    return std::make_unique<Version>(number);
  }
};
} // namespace

void KoilaDialect::initialize() {
  registerAttributes();
  registerTypes();
  registerOperations();
  addInterfaces<KoilaBytecodeInterface>();
  attachExternalModels(getContext());
  rules::attachDataExtents(*getContext());
}

void KoilaDialect::registerAttributes() {
  addAttributes<
#define GET_ATTRDEF_LIST
#include "koila/Dialect/Koila/IR/KoilaAttributes.cpp.inc"
      >();
}

void KoilaDialect::registerTypes() {
  addTypes<
#define GET_TYPEDEF_LIST
#include "koila/Dialect/Koila/IR/KoilaTypes.cpp.inc"
      >();
}

void KoilaDialect::registerOperations() {
  addOperations<
#define GET_OP_LIST
#include "koila/Dialect/Koila/IR/KoilaOps.cpp.inc"
      >();
  registerAttentionOps();
  registerBinaryOps();
  registerConvolutionOps();
  registerCopyOps();
  registerFactoryOps();
  registerIndexOps();
  registerLossOps();
  registerMatmulOps();
  registerNormOps();
  registerObjectOps();
  registerPointwiseOps();
  registerPoolOps();
  registerReductionOps();
  registerResampleOps();
  registerSortOps();
  registerSpectralOps();
  registerViewOps();
}

//===----------------------------------------------------------------------===//
// Attributes on foreign operations
//===----------------------------------------------------------------------===//

LogicalResult SymbolAttr::verify(function_ref<InFlightDiagnostic()> emitError,
                                 StringRef name, int64_t value, int64_t lower,
                                 int64_t upper, bool batch) {
  if (name.empty())
    return emitError() << "a symbol needs a name";
  if (value < -1 || lower < 0 || upper < -1)
    return emitError() << "symbol '" << name
                       << "' has a negative value or bound";
  if (upper != -1 && upper < lower)
    return emitError() << "symbol '" << name << "' has an empty range";
  if (value != -1 && (value < lower || (upper != -1 && value > upper)))
    return emitError() << "symbol '" << name << "' has value " << value
                       << " outside its range";
  return success();
}

LogicalResult TargetAttr::verify(function_ref<InFlightDiagnostic()> emitError,
                                 StringRef device, int64_t threads, StringRef,
                                 int64_t l1Bytes, int64_t l2Bytes) {
  if (device.empty())
    return emitError() << "a target needs a device";
  if (threads < 0)
    return emitError() << "a target of " << threads
                       << " threads; there is at least one";
  if (l1Bytes < 0 || l2Bytes < 0)
    return emitError() << "a target has caches of 0 bytes (unknown) or more";
  return success();
}

LogicalResult KoilaDialect::verifyOperationAttribute(Operation *op,
                                                     NamedAttribute attr) {
  if (attr.getName() == kSymbolsAttr) {
    auto symbols = dyn_cast<ArrayAttr>(attr.getValue());
    if (!isa<ModuleOp>(op) || !symbols)
      return op->emitOpError() << "'" << kSymbolsAttr
                               << "' is an array of #koila.symbol on a module";
    llvm::StringMap<bool> names;
    unsigned batches = 0;
    for (Attribute element : symbols) {
      auto symbol = dyn_cast<SymbolAttr>(element);
      if (!symbol)
        return op->emitOpError() << "'" << kSymbolsAttr << "' holds " << element
                                 << ", expected #koila.symbol";
      if (!names.try_emplace(symbol.getName(), true).second)
        return op->emitOpError()
               << "symbol '" << symbol.getName() << "' is listed twice";
      batches += symbol.getBatch();
    }
    if (batches > 1)
      return op->emitOpError() << "more than one symbol is the batch";
    return success();
  }
  if (attr.getName() == kArchiveAttr && !isa<ArchiveAttr>(attr.getValue()))
    return op->emitOpError() << "'" << kArchiveAttr << "' is a #koila.archive";
  if (attr.getName() == kTrainingAttr && !isa<BoolAttr>(attr.getValue()))
    return op->emitOpError() << "'" << kTrainingAttr << "' is true or false";
  if (attr.getName() == kTargetAttr &&
      (!isa<ModuleOp>(op) || !isa<TargetAttr>(attr.getValue())))
    return op->emitOpError()
           << "'" << kTargetAttr << "' is a #koila.target on a module";
  if (attr.getName() == kReportAttr && !isa<StringAttr>(attr.getValue()))
    return op->emitOpError() << "'" << kReportAttr << "' is a string";
  if ((attr.getName() == kReadsAttr || attr.getName() == kWritesAttr ||
       attr.getName() == kSpecializedAttr || attr.getName() == kDecidedAttr ||
       attr.getName() == kPerTileAttr) &&
      !isa<UnitAttr>(attr.getValue()))
    return op->emitOpError()
           << "'" << attr.getName().getValue() << "' is a unit attribute";
  if (attr.getName() == kTiledAttr) {
    auto record = dyn_cast<DictionaryAttr>(attr.getValue());
    auto tile = record ? record.getAs<IntegerAttr>("tile") : nullptr;
    if (!tile || tile.getInt() < 1 || !record.getAs<StringAttr>("guard") ||
        !record.getAs<StringAttr>("batch_symbol"))
      return op->emitOpError()
             << "'" << kTiledAttr << "' needs tile, guard and batch_symbol";
  }
  return success();
}

LogicalResult KoilaDialect::verifyRegionArgAttribute(Operation *op,
                                                     unsigned regionIndex,
                                                     unsigned argIndex,
                                                     NamedAttribute attr) {
  auto function = dyn_cast<FunctionOpInterface>(op);
  if (!function)
    return success();
  Type type = function.getArgumentTypes()[argIndex];
  auto error = [&]() {
    return op->emitOpError() << "argument " << argIndex << ": ";
  };
  if (attr.getName() == kDimsAttr) {
    auto dims = dyn_cast<DimsAttr>(attr.getValue());
    auto ranked = dyn_cast<RankedTensorType>(type);
    if (!dims || !ranked)
      return error() << "'" << kDimsAttr
                     << "' is a #koila.dims on a ranked tensor";
    if (static_cast<int64_t>(dims.getExprs().size()) != ranked.getRank())
      return error() << "'" << kDimsAttr << "' has " << dims.getExprs().size()
                     << " dims, the type has " << ranked.getRank();
    for (auto [index, expr] : llvm::enumerate(dims.getExprs())) {
      auto extent = DimExpr(expr).getConstant();
      if (extent && *extent < 0)
        return error() << "extent " << *extent << " of dim " << index
                       << " is negative";
      if (extent && ranked.getDimSize(index) != *extent)
        return error() << "dim " << index << " is " << *extent << " in '"
                       << kDimsAttr << "' and "
                       << (ranked.isDynamicDim(index)
                               ? std::string("?")
                               : std::to_string(ranked.getDimSize(index)))
                       << " in the type";
    }
  }
  if (attr.getName() == kNameAttr && !isa<StringAttr>(attr.getValue()))
    return error() << "'" << kNameAttr << "' is a string";
  if (attr.getName() == kRangeAttr) {
    auto range = dyn_cast<RangeAttr>(attr.getValue());
    if (!range)
      return error() << "'" << kRangeAttr << "' is a #koila.range";
    auto length = (DimExpr(range.getTo()) - range.getFrom()).getConstant();
    if (length && *length <= 0)
      return error() << "'" << kRangeAttr << "' is the empty range " << range;
  }
  return success();
}
