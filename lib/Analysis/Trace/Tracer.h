//===- Tracer.h - Follows one call of a program -----------------*- C++ -*-===//

#ifndef KOILA_ANALYSIS_TRACE_TRACER_H
#define KOILA_ANALYSIS_TRACE_TRACER_H

#include "ExecutionTrace.h"
#include "KnownOperators.h"
#include "koila/Dialect/Koila/IR/Koila.h"
#include "koila/Dialect/Koila/IR/ObjectOps.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/Support/JSON.h"

namespace koila {

/// Whether an argument of `op` is a number that the program computes.
bool takesNumber(TorchOpaqueOp op);

/// Whether `op` gives a list of tensors, and nothing else.
bool givesTensors(TorchOpaqueOp op);

/// What an attribute of the module holds when a call starts, or ends.
struct Held {
  enum class Kind {
    /// What the archive has there.
    Archive,
    /// A contiguous tensor with these dims.
    Tensor,
    /// None, or a number or text.
    Literal,
    Tuple,
    /// Nobody knows.
    Unknown
  };
  Kind kind = Kind::Archive;
  llvm::SmallVector<DimExpr> dims;
  mlir::Type elementType;
  mlir::Attribute literal;
  /// Of a tuple.
  mlir::Type type;
  std::vector<Held> elements;
  bool operator==(const Held &other) const {
    return kind == other.kind && dims == other.dims &&
           elementType == other.elementType && literal == other.literal &&
           type == other.type && elements == other.elements;
  }
};

/// An owner of attributes, by its number among those that differ, and the name
/// of an attribute. Paths of one place may lead to one attribute.
using Place = std::pair<unsigned, mlir::StringAttr>;

/// What calls leave in attributes, by their paths, and so what each finds
/// there.
class AttributeStates {
public:
  Held lookup(mlir::StringAttr path) const { return states.lookup(path).held; }
  /// What a call has found in an attribute, or might have if it had read it,
  /// and what it has left there; `op` is the assignment.
  struct Left {
    Held found, left;
    mlir::Operation *op = nullptr;
    Place place;
    bool mayHaveGraph = false, isRead = false;
  };
  using LeftStates = llvm::MapVector<mlir::StringAttr, Left>;
  /// Takes over what a call has left. False if the next one finds what it did.
  bool update(const LeftStates &left);
  /// What calls leave of which each goes one of several ways.
  static void merge(LeftStates &into, const LeftStates &other);
  /// The assignment of an attribute that holds something of another size after
  /// each call, and is taken to be as the archive has it; null if there is
  /// none.
  mlir::Operation *getUnsteady() const { return unsteady; }
  /// The assignment of an attribute in which the second call does not find yet
  /// what later ones do; null if there is none.
  mlir::Operation *getLate() const { return late; }
  /// Whether a call assigned what may be the attribute at `path` by another.
  bool isAssignedElsewhere(Place place, mlir::StringAttr path) const {
    return llvm::any_of(assigned.lookup(place),
                        [&](mlir::StringAttr other) { return other != path; });
  }

private:
  struct State {
    Held held;
    /// None: the first call neither read nor assigned it.
    std::optional<Held> afterFirst;
    unsigned changes = 0;
    bool isFixed = false;
  };
  llvm::DenseMap<mlir::StringAttr, State> states;
  llvm::DenseMap<Place, llvm::SmallVector<mlir::StringAttr, 1>> assigned;
  bool isFirst = true;
  mlir::Operation *unsteady = nullptr, *late = nullptr;
};

struct ElementFlow;

/// The ways of a call where data decide, one call after the other: first the
/// one on which all conditions hold.
class Choices {
public:
  /// Whether the next condition holds; none if the call is to end, since there
  /// are too many.
  std::optional<bool> take();
  /// Makes ready for the next call; false if all ways have been gone.
  bool advance();
  bool areTooMany() const { return tooMany; }

private:
  static constexpr size_t kMost = 64;
  llvm::SmallVector<bool> ways;
  size_t next = 0;
  bool tooMany = false;
};

class Tracer {
public:
  /// `states` says what attributes hold when the call starts. Where data
  /// decide, the trace has all branches, or those that `choices` say.
  Tracer(mlir::FunctionOpInterface program, const DimAnalysis &dims,
         CallSetting setting, const AttributeStates &states,
         Choices *choices = nullptr)
      : program(program), dims(dims), setting(setting), states(states),
        choices(choices), records(setting.recordsGradients != false),
        builder(program->getContext()), operators(program->getContext()) {}

  std::optional<ExecutionTrace> run();
  /// What the call leaves in attributes of which it took something to be known.
  AttributeStates::LeftStates getLeft();
  /// Whether the call ends with an exception, after which nothing is there.
  bool raises() const { return isRaised; }

private:
  struct Object;
  /// What a variable, or a place in a container, holds.
  struct Cell {
    mlir::Value value;
    Object *object = nullptr;
  };
  /// A list, tuple, dict, or instance of a class.
  struct Object {
    mlir::Type type;
    std::optional<Container> kind;
    /// Of a dict key, value, key, value.
    llvm::SmallVector<Cell> elements;
    llvm::MapVector<mlir::StringAttr, Cell> fields;
    unsigned holders = 0;
    /// Branches and loops around it that are left in the trace.
    unsigned depth = 0;
    /// An operation that makes the container, while that is as it was.
    mlir::Value shown;
  };
  using Cells = llvm::SmallVector<Cell>;

  void findEnds();
  void copyModule(ExecutionTrace &trace);
  void takeGiven(mlir::Block &entry);
  Cell takeNumbers(mlir::Value value, mlir::ArrayAttr numbers);
  Cell takeContainer(mlir::Value value, mlir::ArrayAttr keys);

  // Variables.
  Cell lookup(mlir::Value old) const { return variables.lookup(old); }
  void hold(const Cell &cell) {
    if (cell.object)
      ++cell.object->holders;
  }
  void release(const Cell &cell);
  /// The end of a variable that holds it: what it holds lives until here.
  void drop(const Cell &cell);
  void bind(mlir::Value old, const Cell &cell) {
    hold(cell);
    variables[old] = cell;
  }
  /// Binds what is held already.
  void hand(mlir::ValueRange olds, llvm::ArrayRef<Cell> cells) {
    for (auto [old, cell] : llvm::zip_equal(olds, cells))
      variables[old] = cell;
  }
  void keep(mlir::Value value);
  void keepAll(const Cell &cell);
  void end(mlir::Operation *op);
  /// Variables that a loop starts with are its own from then on.
  void endInits(mlir::Operation *loop);
  static bool startsWith(mlir::Operation *loop, mlir::Value value,
                         bool isInside);
  void flush(mlir::Location loc);

  // Facts of the trace.
  ValueInfo getInfo(mlir::Value value);
  void infer(mlir::Operation *op);
  mlir::Attribute compareTensors(mlir::Operation *op);
  void foldLiteral(mlir::Operation *op);
  // Where a gradient may flow.
  bool mayWant(const Cell &cell) const;
  void markWanting(mlir::Value value);
  void followGradient(mlir::Operation *op);
  mlir::Attribute getRequiresGrad(mlir::Operation *op);
  void name(mlir::Value value, ValueInfo info);
  std::optional<bool> decide(mlir::Value condition);
  /// What the condition of `op`, which data decide, is on this way.
  std::optional<bool> choose(mlir::Value condition, mlir::Operation *op);
  std::optional<int64_t> getNumber(mlir::Value old);
  /// Null if it is not known, or if there is no value.
  mlir::Attribute getLiteral(mlir::Value value);

  // Values of the trace.
  mlir::Value makeConstant(mlir::Attribute literal, mlir::Type type,
                           mlir::Location loc);
  mlir::Value getValue(const Cell &cell, mlir::Type type, mlir::Location loc);
  Object *makeObject(mlir::Type type, std::optional<Container> kind);
  Object *getObject(Cell &cell, mlir::Location loc);
  Object *makeList(mlir::Attribute literal, mlir::Location loc);
  mlir::Operation *copy(mlir::Operation *op);
  void dropReads(mlir::Operation *op, mlir::Operation *made);

  // Operations. They return false if the call cannot be followed.
  std::optional<Cells> execute(mlir::Block &block);
  bool execute(mlir::Operation *op);
  bool copyRead(mlir::Operation *op);
  bool executeElement(ElementOp op);
  bool executeUnpack(UnpackOp op);
  bool executeRead(AttrGetOp op);
  std::optional<Cell> readHeld(AttrGetOp op);
  std::optional<Cell> make(const Held &held, mlir::Location loc);
  mlir::Value readWeight(mlir::StringAttr path, mlir::Location loc);
  Held describe(const Cell &cell);
  bool executeAssignment(AttrSetOp op);
  void indexWeights();
  Place getPlace(mlir::StringAttr path);
  Cell &getAttribute(mlir::StringAttr path);
  bool forget(llvm::ArrayRef<mlir::StringAttr> paths);
  bool forgetOthers(mlir::StringAttr path);
  bool forgetName(mlir::StringAttr name);
  ParamOp findWeight(mlir::StringAttr path);
  Held describe(ParamOp weight);
  bool executeOpaque(TorchOpaqueOp op);
  std::optional<llvm::SmallVector<OperatorArgument>>
  getArguments(TorchOpaqueOp op);
  size_t countElements(TorchOpaqueOp op);
  mlir::Operation *createWith(TorchOpaqueOp op,
                              llvm::ArrayRef<OperatorArgument> arguments,
                              size_t count);
  mlir::Operation *create(TorchOpaqueOp op,
                          llvm::ArrayRef<OperatorArgument> arguments);
  bool lacksTensors(TorchOpaqueOp op,
                    llvm::ArrayRef<OperatorArgument> arguments);
  mlir::Operation *describe(TorchOpaqueOp op);
  mlir::Attribute getListLiteral(const Object &list);
  bool executeOut(TorchOpaqueOp op);
  bool isAnswered(TorchOpaqueOp op);
  void setRecording(TorchOpaqueOp op);
  bool delimitNoGrad(TorchOpaqueOp op);
  /// None if `op` does not move elements only.
  std::optional<bool> moveElements(TorchOpaqueOp op);
  std::optional<Cell> getElement(TorchOpaqueOp op, mlir::Attribute argument);
  std::optional<Cell> indexTuple(TorchOpaqueOp op);
  bool mayChange(const Object *object) const;
  std::optional<bool> changeForeign(TorchOpaqueOp op, const ElementFlow &flow);
  bool append(Object *list, const Cell &element);
  bool replaceContents(Object *object, const llvm::json::Value &contents,
                       llvm::ArrayRef<Cell> elements, TorchOpaqueOp op);
  std::optional<Cell> decode(const llvm::json::Value &value, mlir::Type type,
                             llvm::ArrayRef<Cell> elements, mlir::Location loc);
  bool executeIf(mlir::scf::IfOp op);
  Cells takeInits(mlir::LoopLikeOpInterface loop);
  bool executeFor(mlir::scf::ForOp op);
  bool executeWhile(mlir::scf::WhileOp op);
  bool leaveIf(mlir::scf::IfOp op);
  bool leaveFor(mlir::scf::ForOp op);
  bool leaveWhile(mlir::scf::WhileOp op, Cells carried);
  /// Traces `region` as a part of an operation that is left, whose block `into`
  /// has arguments that nobody knows. `terminate` gets what is handed on.
  bool executeRegion(mlir::Region &region, mlir::Block *into,
                     llvm::function_ref<void(mlir::ValueRange)> terminate);
  void bindUnknown(mlir::ValueRange olds, mlir::ValueRange values);

  mlir::FunctionOpInterface program;
  const DimAnalysis &dims;
  /// As it is where the trace is.
  CallSetting setting;
  const AttributeStates &states;
  /// Null: a trace has all ways.
  Choices *choices;
  /// The first operation of the program that made use of them.
  mlir::Operation *forked = nullptr;
  bool isRaised = false;
  /// Whether the call does, where the program does not say otherwise.
  const bool records;
  /// What `with torch.no_grad()` returns to.
  llvm::SmallVector<std::optional<bool>, 1> outer;
  mlir::OpBuilder builder;
  KnownOperators operators;
  mlir::SymbolTableCollection params;
  mlir::FunctionOpInterface function;
  llvm::DenseMap<mlir::Value, Cell> variables;
  llvm::DenseMap<mlir::Value, ValueInfo> facts;
  std::vector<std::unique_ptr<Object>> objects;
  /// Those of the caller.
  llvm::SmallVector<Object *, 2> given;
  /// Variables that end with an operation, and whether something inside of it
  /// reads them.
  llvm::DenseMap<mlir::Operation *,
                 llvm::SmallVector<std::pair<mlir::Value, bool>, 2>>
      ends;
  /// Those of a block that nothing reads.
  llvm::DenseMap<mlir::Block *, llvm::SmallVector<mlir::Value, 1>> unread;
  llvm::SetVector<mlir::Value> ending;
  /// What attributes of the module hold, and the last assignments of those that
  /// the call assigns.
  llvm::MapVector<mlir::StringAttr, Cell> attributes;
  llvm::DenseMap<mlir::StringAttr, mlir::Operation *> assigned;
  /// What attributes are taken to hold when the call starts.
  llvm::MapVector<mlir::StringAttr, Held> taken;
  /// Weights by their paths, and owners by theirs.
  llvm::DenseMap<mlir::StringAttr, ParamOp> weights;
  llvm::StringMap<unsigned> owners;
  /// Paths of `attributes` by what they may lead to.
  llvm::MapVector<Place, llvm::SmallVector<mlir::StringAttr, 1>> places;
  /// Attributes that some assignment gives something with a gradient, and
  /// those that are assigned.
  llvm::DenseSet<Place> wantingPlaces, assignedPlaces;
  /// Values to which a gradient may flow, or all of them.
  llvm::DenseSet<mlir::Value> wanting;
  /// Those of `wanting` to which one does.
  llvm::DenseSet<mlir::Value> surelyWanting;
  bool wantsAll = false;
  /// What was put into lists and dicts that nobody knows, which keep it.
  Cells kept;
  bool runsUnknownCode = false;
  /// Whether a list or dict is changed that is none of this trace.
  bool changesForeign = false;
  /// The first that frees a tensor of before the call.
  mlir::Operation *replaced = nullptr;
  /// A trace is analysed like any program; longer ones would take minutes.
  static constexpr unsigned kMostOperations = 1 << 15;
  /// Operators on containers get all elements.
  static constexpr size_t kMostElements = 1 << 10;
  bool turnsRecordingOn = false, unknownRecording = false, forks = false;
  unsigned depth = 0, undecided = 0, operations = 0, symbols = 0;
};

} // namespace koila

#endif // KOILA_ANALYSIS_TRACE_TRACER_H
