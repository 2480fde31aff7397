//===- Import.h - From a TorchScript method to the dialect ------*- C++ -*-===//

#ifndef KOILA_TARGET_TORCHSCRIPT_IMPORT_IMPORT_H
#define KOILA_TARGET_TORCHSCRIPT_IMPORT_IMPORT_H

#include "../Boundary/Archive.h"
#include "../Boundary/Locations.h"
#include "../Boundary/Operators.h"
#include "Aliases.h"
#include "Graph.h"
#include "koila/Dialect/Koila/IR/Koila.h"
#include "koila/Target/TorchScript/TrainStep.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/StringSet.h"
#include <set>

namespace koila::torchscript {

/// In the metadata of a location: the index of the TorchScript node that the
/// operation came from. Emission copies source range and types from there.
inline constexpr llvm::StringLiteral kNodeAttr = "koila.node";
inline constexpr llvm::StringLiteral kExampleAttr = "koila.example";
inline constexpr llvm::StringLiteral kDefaultAttr = "koila.default";
/// What a node without a schema says besides its operands, spelled.
inline constexpr llvm::StringLiteral kNodeAttributesAttr = "koila.attributes";

struct ImportedFunction {
  mlir::OwningOpRef<mlir::ModuleOp> module;
  PreparedGraph graph;
  /// Tensor constants by the index in `koila.param ... constant N`.
  std::vector<at::Tensor> constants;
};

/// Imports one method. Throws Refusal. `assumed`: see prepareGraph.
ImportedFunction
importFunction(const Archive &archive, const torch::jit::Module &module,
               const std::string &function, const OperatorTable &operators,
               mlir::MLIRContext *context,
               const std::vector<AssumedAttribute> &assumed = {});

/// Notes on `module` that its function is a training step, and of what.
void setTrainStep(mlir::ModuleOp module, const TrainStepSpec &spec);
/// What it is made of; none if it is no step that koila made.
std::optional<TrainStepSpec> getTrainStep(mlir::ModuleOp module);

/// Values whose storage is written where something else can see it: they are
/// references, and what touches them stays in order (MutableStorageEffects.h).
struct OrderedValues {
  llvm::DenseSet<const torch::jit::Value *> values;
  /// Those among them whose class has a list, dict or object that changes.
  llvm::DenseSet<const torch::jit::Value *> changing;
};

/// One import. Constants, attributes of modules and lists are built where they
/// are first needed: the printer of archives moves them, and a program must
/// import the same before and after a round trip.
class FunctionImporter {
public:
  FunctionImporter(const torch::jit::Module &module, ImportedFunction &result,
                   const OperatorTable &operators, mlir::MLIRContext *context,
                   const OrderedValues &ordered);

  void run(const Archive &archive, const torch::jit::Method &method);
  /// After a run: the values that must be ordered. Where that is more than was
  /// given, the import has to be done again.
  OrderedValues findOrdered();

private:
  using Node = torch::jit::Node;
  using TorchValue = torch::jit::Value;
  /// What a chain of attribute reads leads to.
  struct ModuleAttribute {
    c10::IValue value;
    std::string path;
  };

  // Import.cpp
  void declareWeights();
  void declareWeight(llvm::StringRef name, const at::Tensor &tensor,
                     bool buffer);
  void addArguments(const torch::jit::Method &method,
                    mlir::func::FuncOp function);
  void addReturn(mlir::func::FuncOp function);
  void addAssumptions(mlir::func::FuncOp function);
  /// What an attribute is taken to be, as assumptions spell it.
  mlir::Attribute getAssumed(const c10::IValue &value) const;

  // ImportValues.cpp
  /// The MLIR value of `value`, built at the insertion point if need be.
  mlir::Value getValue(const TorchValue *value);
  /// The same where it is built already; null elsewhere.
  mlir::Value findValue(const TorchValue *value);
  /// As getValue, with integers that stand for 0-dim tensors made tensors.
  mlir::Value getTensor(const TorchValue *value);
  /// As getTensor, and None is of its own type, whatever it may stand for.
  mlir::Value getArgument(const TorchValue *value);
  /// An integer, or a 0-dim int64 tensor modelled as one; null if neither.
  mlir::Value getInteger(const TorchValue *value);
  mlir::Value getWeight(const at::Tensor &tensor, const std::string &path);
  mlir::Value getConstantTensor(const at::Tensor &tensor);
  /// The list, tuple or dict that `node` makes.
  mlir::Value construct(const Node *node, Container container);
  mlir::Value getConstantNumber(mlir::TypedAttr number);
  /// The value of a literal of that type.
  mlir::Value getConstant(const c10::IValue &literal, const c10::TypePtr &type);
  /// The literal behind a value; none if there is none.
  std::optional<c10::IValue> getLiteral(const TorchValue *value) const;
  /// A literal or a list of literals as an attribute; null otherwise.
  mlir::Attribute getLiteralAttr(const TorchValue *value) const;
  mlir::Attribute getAttr(const c10::IValue &value) const;
  const ModuleAttribute *getModuleAttribute(const TorchValue *value) const;

  // ImportObjects.cpp
  void importGetAttr(Node *node);
  mlir::Operation *importSetAttr(Node *node);
  mlir::Operation *importCallMethod(Node *node);
  /// Classes, modules as values, and other nodes that the interpreter knows
  /// without a schema; null if `node` is none of them.
  mlir::Operation *importSpecial(Node *node);
  /// The path of an attribute of the module that `node` reads or writes; none
  /// for other objects.
  std::optional<std::string> getPath(const Node *node) const;
  const c10::ivalue::Object *getOwner(const TorchValue *value) const;
  void findWrittenAttributes();
  /// What a node says besides its operands, spelled; null if nothing.
  mlir::Attribute getNodeAttributes(const Node *node);

  // ImportRegions.cpp
  bool importRegion(Node *node);
  void importKeptAlive(Node *node);
  void importIf(Node *node);
  void importFor(Node *node);
  void importWhile(Node *node);
  /// Imports the nodes of `block` into `body`, which yields the outputs from
  /// `first` on as `types`.
  void importBlock(torch::jit::Block *block, mlir::Block &body, size_t first,
                   mlir::TypeRange types);
  /// Types and first values of what a loop carries.
  void addCarried(Node *node, llvm::SmallVectorImpl<mlir::Type> &types,
                  llvm::SmallVectorImpl<mlir::Value> &inits);
  /// As importBlock, of a loop whose `body` has `carried` as arguments.
  void importLoopBody(Node *node, mlir::Operation *loop, mlir::Block &body,
                      mlir::ValueRange carried, size_t first,
                      mlir::TypeRange types);
  void uniteCarried(const TorchValue *lhs, const TorchValue *rhs);
  mlir::Value getAs(const TorchValue *value, mlir::Type type);
  /// Caches of what is built at first need hold inside of a block only.
  struct Scope {
    llvm::SmallVector<std::string> reads;
    llvm::SmallVector<mlir::Attribute> numbers;
    llvm::SmallVector<const TorchValue *> values;
  };
  mlir::Value rememberRead(llvm::StringRef name, mlir::Value value);

  // ImportNodes.cpp
  void importNode(Node *node);
  bool isOrdered(const TorchValue *value) const;
  /// Whether `value` may be a list or dict that changes.
  bool isChanging(const TorchValue *value) const;
  /// Sets the marks of what touches ordered values.
  void markOrdered(Node *node, mlir::Operation *op, bool writes);
  bool importInteger(Node *node);
  bool importSize(Node *node);
  bool importIdentity(Node *node);
  /// Containers and what is taken out of them; null if `node` is neither.
  mlir::Operation *importContainer(Node *node);
  /// A leaf, or the gradient of one; null if `node` is neither.
  mlir::Operation *importLeaf(Node *node);
  mlir::Operation *importOperator(Node *node, const OperatorInfo &info,
                                  bool inPlace);
  mlir::Operation *importCustom(Node *node);
  mlir::Operation *importOpaque(Node *node);
  mlir::Attribute getMarker(c10::TypePtr type, const TorchValue *value);
  std::optional<llvm::SmallVector<const TorchValue *>>
  getListElements(Node *node);
  mlir::Attribute encodeOperand(const TorchValue *value, bool literalLists,
                                llvm::SmallVectorImpl<mlir::Value> &operands);
  mlir::Operation *createOpaque(llvm::StringRef callee,
                                llvm::ArrayRef<mlir::Attribute> arguments,
                                mlir::ValueRange operands, Effects effects,
                                mlir::TypeRange results);
  /// Refuses what is no dataflow.
  void checkSupported(Node *node);
  struct Write {
    bool any = false;
    /// The tensor that becomes the result, if values can say the write.
    const TorchValue *tied = nullptr;
    /// The `out=` tensor, which the result is from here on.
    const TorchValue *out = nullptr;
  };
  /// What the node writes. Notes writes that values cannot say.
  Write getWrite(Node *node);
  bool isSeenElsewhere(const TorchValue *written, Node *node);
  void defineResults(Node *node, mlir::Operation *op,
                     const TorchValue *written);
  void uniteByStorageRule(Node *node, mlir::Operation *op);

  const torch::jit::Module &module;
  ImportedFunction &result;
  const OperatorTable &operators;
  mlir::MLIRContext *context;
  mlir::OpBuilder builder;
  /// Before the function, where weights are declared.
  mlir::OpBuilder weightBuilder;
  mlir::Location location;
  LocationReader locations;

  std::unordered_map<const TorchValue *, mlir::Value> values;
  std::unordered_map<const TorchValue *, ModuleAttribute> attributes;
  std::unordered_map<const Node *, int64_t> nodeIndices;
  AliasClasses aliases;
  const OrderedValues &ordered;
  /// Values that are written in a way which values cannot say.
  llvm::SmallVector<const TorchValue *> seenWrites;
  /// Grad mode changes on the way, so that equal operations are not the same.
  bool orderAll = false;
  std::set<std::pair<const c10::ivalue::Object *, std::string>>
      writtenAttributes;
  /// One value that stands for an attribute which the function writes.
  llvm::StringMap<const TorchValue *> attributeValues;
  llvm::SmallVector<Scope> scopes;
  llvm::DenseMap<const c10::TensorImpl *, ParamOp> weights;
  llvm::DenseMap<const c10::TensorImpl *, unsigned> constantIndices;
  llvm::StringSet<> weightNames;
  /// Reads of weights and of module attributes by name, and numbers.
  llvm::StringMap<mlir::Value> reads;
  llvm::DenseMap<mlir::Attribute, mlir::Value> numbers;
};

} // namespace koila::torchscript

#endif // KOILA_TARGET_TORCHSCRIPT_IMPORT_IMPORT_H
