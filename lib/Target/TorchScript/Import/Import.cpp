//===- Import.cpp - From a TorchScript method to the dialect --------------===//
//
// Start reading here. A method is inlined and read node by node
// (ImportNodes.cpp) into one function; every parameter and buffer of the
// module becomes a `koila.param`, whether the method reads it or not, since
// reports count them all.
//
//===----------------------------------------------------------------------===//

#include "Import.h"
#include "../Boundary/DiagnosticJSON.h"
#include "../Boundary/Locations.h"
#include "koila/Analysis/PeakMemory.h"
#include "koila/Dialect/Koila/IR/LossOps.h"
#include "koila/Target/TorchScript/Types.h"
#include "mlir/IR/Verifier.h"
#include "llvm/ADT/MapVector.h"

using namespace mlir;
using namespace koila;
using namespace koila::torchscript;
namespace tj = torch::jit;
using llvm::Twine;

FunctionImporter::FunctionImporter(const tj::Module &module,
                                   ImportedFunction &result,
                                   const OperatorTable &operators,
                                   MLIRContext *context,
                                   const OrderedValues &ordered)
    : module(module), result(result), operators(operators), context(context),
      builder(context), weightBuilder(context),
      location(UnknownLoc::get(context)), locations(context), ordered(ordered) {
  // What only reads or names has no number: reading an archive may add such
  // nodes (TracedDevices.h).
  int64_t count = 0;
  for (Node *node : result.graph.nodes) {
    c10::Symbol kind = node->kind();
    bool isNumbered = kind != c10::prim::Constant &&
                      kind != c10::prim::GetAttr && kind != c10::prim::device;
    nodeIndices.emplace(node, isNumbered ? count++ : -1);
  }
}

OrderedValues FunctionImporter::findOrdered() {
  OrderedValues found = ordered;
  aliases.uniteForeign({seenWrites.begin(), seenWrites.end()});
  for (const TorchValue *value : seenWrites)
    for (const TorchValue *member : aliases.getMembers(value))
      found.values.insert(member);
  for (const TorchValue *value : seenWrites)
    if (value->type()->kind() != c10::TypeKind::TensorType)
      for (const TorchValue *member : aliases.getMembers(value))
        found.changing.insert(member);
  return found;
}

void FunctionImporter::declareWeight(llvm::StringRef name,
                                     const at::Tensor &tensor, bool buffer) {
  if (!tensor.defined())
    return;
  if (auto it = weights.find(tensor.unsafeGetTensorImpl());
      it != weights.end()) {
    // Another name of the same tensor: a tied weight.
    ParamOp param = it->second;
    llvm::SmallVector<Attribute> keys(param.getKeys().getValue());
    keys.push_back(builder.getStringAttr(name));
    param.setKeysAttr(builder.getArrayAttr(keys));
    return;
  }
  if (tensor.layout() != at::kStrided)
    refuse(Twine("parameter '") + name +
           "' is not a dense tensor; make it "
           "dense before saving the model");
  llvm::ArrayRef<int64_t> strides(tensor.strides().data(),
                                  tensor.strides().size());
  auto param = ParamOp::create(
      weightBuilder, UnknownLoc::get(context), builder.getStringAttr(name),
      TypeAttr::get(getTensorType(tensor, context)),
      builder.getStrArrayAttr({name}), builder.getDenseI64ArrayAttr(strides),
      builder.getStringAttr(""),
      builder.getI64IntegerAttr(tensor.storage_offset()),
      tensor.requires_grad() ? builder.getUnitAttr() : UnitAttr(),
      buffer ? builder.getUnitAttr() : UnitAttr(), IntegerAttr());
  weights[tensor.unsafeGetTensorImpl()] = param;
  weightNames.insert(name);
}

void FunctionImporter::declareWeights() {
  // A storage is named only where several tensors share it.
  llvm::MapVector<const void *, llvm::SmallVector<ParamOp>> storages;
  auto declare = [&](const auto &list, bool buffer) {
    for (const auto &named : list) {
      declareWeight(named.name, named.value, buffer);
      if (named.value.defined()) {
        auto &owners = storages[named.value.storage().unsafeGetStorageImpl()];
        ParamOp param = weights[named.value.unsafeGetTensorImpl()];
        if (!llvm::is_contained(owners, param))
          owners.push_back(param);
      }
    }
  };
  declare(module.named_parameters(), /*buffer=*/false);
  declare(module.named_buffers(), /*buffer=*/true);
  unsigned count = 0;
  for (auto &[storage, owners] : storages) {
    if (owners.size() < 2)
      continue;
    std::string name = "storage." + std::to_string(count++);
    for (ParamOp param : owners)
      param.setStorageAttr(builder.getStringAttr(name));
  }
}

void FunctionImporter::addArguments(const tj::Method &method,
                                    func::FuncOp function) {
  const c10::FunctionSchema &schema = method.function().getSchema();
  // The method's own graph has the recorded examples, the prepared copy not.
  auto original = tj::toGraphFunction(method.function()).graph();
  llvm::SmallVector<Type> types;
  auto inputs = result.graph.graph->inputs();
  attributes[inputs[0]] = {module._ivalue(), ""};
  aliases.setForeign(inputs[0], "the module");
  Block *body = function.addEntryBlock();
  for (size_t i = 1; i < inputs.size(); ++i) {
    const c10::Argument &argument = schema.arguments()[i];
    Type type = convertType(inputs[i]->type(), context);
    types.push_back(type);
    BlockArgument value = body->addArgument(type, location);
    values[inputs[i]] = value;
    aliases.setForeign(inputs[i], "argument '" + argument.name() + "'");
  }
  function.setFunctionType(builder.getFunctionType(types, {}));
  for (size_t i = 1; i < inputs.size(); ++i) {
    const c10::Argument &argument = schema.arguments()[i];
    auto set = [&](llvm::StringRef name, Attribute attr) {
      if (attr)
        function.setArgAttr(i - 1, name, attr);
    };
    set(KoilaDialect::kNameAttr, builder.getStringAttr(argument.name()));
    if (argument.default_value())
      set(kDefaultAttr, getAttr(*argument.default_value()));
    auto tensorType = original->inputs()[i]->type()->cast<c10::TensorType>();
    if (!tensorType)
      continue;
    auto sizes = tensorType->sizes().concrete_sizes();
    if (sizes && tensorType->scalarType())
      set(kExampleAttr, TypeAttr::get(getTensorType(
                            *sizes, *tensorType->scalarType(), context)));
  }
}

void FunctionImporter::addReturn(func::FuncOp function) {
  llvm::SmallVector<Value> operands;
  for (const TorchValue *output : result.graph.graph->outputs()) {
    std::optional<c10::IValue> literal = getLiteral(output);
    if (literal && literal->isNone() &&
        output->type()->kind() == c10::TypeKind::NoneType)
      continue;
    operands.push_back(getTensor(output));
  }
  func::ReturnOp::create(builder, location, operands);
  function.setFunctionType(builder.getFunctionType(
      function.getArgumentTypes(), ValueRange(operands).getTypes()));
}

/// A list is an array of numbers or has a name, unlike a tuple. A member of an
/// enum has its own.
Attribute FunctionImporter::getAssumed(const c10::IValue &value) const {
  Builder builder(context);
  if (value.isIntList())
    return DenseI64ArrayAttr::get(context, value.toIntVector());
  if (value.isDoubleList())
    return DenseF64ArrayAttr::get(context, value.toDoubleVector());
  if (value.isBoolList())
    return DenseBoolArrayAttr::get(
        context, llvm::to_vector_of<bool>(value.toBoolList()));
  if (value.isList())
    return builder.getDictionaryAttr(
        builder.getNamedAttr("texts", getAttr(value)));
  if (value.isEnum())
    return builder.getDictionaryAttr(builder.getNamedAttr(
        "member", builder.getStringAttr(value.toEnumHolder()->name())));
  if (!value.isTuple())
    return getAttr(value);
  llvm::SmallVector<Attribute> elements;
  for (const c10::IValue &element : value.toTupleRef().elements())
    elements.push_back(getAssumed(element));
  return ArrayAttr::get(context, elements);
}

void FunctionImporter::addAssumptions(func::FuncOp function) {
  if (!result.graph.lifetimes.empty())
    function->setAttr(kLifetimesAttr,
                      builder.getStringAttr(result.graph.lifetimes));
  if (result.graph.assumed.empty())
    return;
  function->setAttr(KoilaDialect::kSpecializedAttr, builder.getUnitAttr());
  for (const AssumedAttribute &assumption : result.graph.assumed)
    AssumeOp::create(builder, function.getLoc(), Fact::Attribute, Value(),
                     IntegerAttr(), getAssumed(assumption.value),
                     builder.getStringAttr(assumption.path));
}

void FunctionImporter::run(const Archive &archive, const tj::Method &method) {
  const std::string &name = method.name();
  location = NameLoc::get(builder.getStringAttr(name),
                          FileLineColLoc::get(context, archive.path, 0, 0));
  result.module = ModuleOp::create(location);
  ModuleOp moduleOp = *result.module;
  moduleOp->setAttr(
      KoilaDialect::kArchiveAttr,
      ArchiveAttr::get(context, archive.path, archive.fingerprint, name));
  moduleOp->setAttr(KoilaDialect::kTrainingAttr,
                    builder.getBoolAttr(module.is_training()));
  builder.setInsertionPointToEnd(moduleOp.getBody());
  auto function = func::FuncOp::create(builder, location, name,
                                       builder.getFunctionType({}, {}));
  weightBuilder.setInsertionPoint(function);
  declareWeights();
  findWrittenAttributes();
  addArguments(method, function);
  builder.setInsertionPointToEnd(&function.getBody().front());
  addAssumptions(function);
  for (Node *node : result.graph.graph->nodes()) {
    location = locations.read(node);
    importNode(node);
    importKeptAlive(node);
  }
  location = function.getLoc();
  addReturn(function);
}

ImportedFunction koila::torchscript::importFunction(
    const Archive &archive, const tj::Module &module,
    const std::string &function, const OperatorTable &operators,
    MLIRContext *context, const std::vector<AssumedAttribute> &assumed) {
  tj::Method method = getMethod(module, function, archive.path);
  ImportedFunction result;
  result.graph = prepareGraph(module, method, assumed, context);
  // What is written where something else can see it shows only once the whole
  // function was read; most functions have none.
  OrderedValues ordered;
  while (true) {
    FunctionImporter importer(module, result, operators, context, ordered);
    importer.run(archive, method);
    OrderedValues found = importer.findOrdered();
    if (found.values.size() == ordered.values.size() &&
        found.changing.size() == ordered.changing.size())
      break;
    ordered = std::move(found);
    result.module = nullptr;
    result.constants.clear();
  }
  if (failed(verify(*result.module)))
    refuse(Twine("'") + archive.path +
           "' was read, but what came out of it "
           "is not valid; see the errors above");
  return result;
}

void koila::torchscript::setTrainStep(ModuleOp module,
                                      const TrainStepSpec &spec) {
  Builder builder(module.getContext());
  llvm::SmallVector<NamedAttribute> entries{
      builder.getNamedAttr("method", builder.getStringAttr(spec.method)),
      builder.getNamedAttr("loss", builder.getStringAttr(spec.loss))};
  if (!spec.gradients.empty())
    entries.push_back(builder.getNamedAttr(
        "gradients", builder.getStringAttr(spec.gradients)));
  module->setAttr(kTrainStepAttr, builder.getDictionaryAttr(entries));
}

std::optional<TrainStepSpec> koila::torchscript::getTrainStep(ModuleOp module) {
  auto step = module->getAttrOfType<DictionaryAttr>(kTrainStepAttr);
  if (!step)
    return std::nullopt;
  auto get = [&](llvm::StringRef name) {
    auto text = step.getAs<StringAttr>(name);
    return text ? text.str() : std::string();
  };
  return TrainStepSpec{get("method"), get("loss"), get("gradients")};
}
