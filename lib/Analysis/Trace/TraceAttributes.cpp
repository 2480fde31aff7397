//===- TraceAttributes.cpp - Attributes that a traced call assigns --------===//
//
// A call may read what it assigned before. What it reads first is as the
// archive has it, as long as each call leaves it so; else it is as the last
// call has left it, if all later calls leave the same. What grows from call to
// call never is.
//
//===----------------------------------------------------------------------===//

#include "Tracer.h"
#include "koila/Analysis/AttributeState.h"
#include "koila/Analysis/Storage.h"
#include "koila/Dialect/Koila/IR/TypePromotion.h"
#include <map>

using namespace mlir;
using namespace koila;

bool Tracer::executeRead(AttrGetOp op) {
  if (Value owner = op.getObject()) {
    Object *object = lookup(owner).object;
    if (!object)
      return copy(op);
    auto found = object->fields.find(op.getPathAttr());
    if (found == object->fields.end())
      return false;
    bind(op.getResult(), found->second);
    return true;
  }
  auto found = attributes.find(op.getPathAttr());
  if (found == attributes.end()) {
    std::optional<Cell> held = readHeld(op);
    if (held)
      bind(op.getResult(), *held);
    else if (Operation *made = copy(op))
      held = Cell{made->getResult(0)};
    if (held && depth == 0) {
      hold(*held);
      getAttribute(op.getPathAttr()) = *held;
    }
    return held.has_value();
  }
  bind(op.getResult(), found->second);
  return true;
}

//===----------------------------------------------------------------------===//
// Which paths lead to one attribute
//===----------------------------------------------------------------------===//

/// Finds the weight of each path, and which owners may be one object: of a
/// weight in it, an object has a key by each path that leads to it.
void Tracer::indexWeights() {
  // What is in an owner: the rest of each key, and which weight that is.
  std::map<StringRef, std::vector<std::pair<StringRef, unsigned>>> contents;
  unsigned number = 0;
  for (ParamOp weight :
       function->getParentOfType<ModuleOp>().getBody()->getOps<ParamOp>()) {
    for (auto key : weight.getKeys().getAsRange<StringAttr>()) {
      weights.try_emplace(key, weight);
      StringRef path = key.getValue();
      for (size_t end = 0; end != StringRef::npos;) {
        contents[path.take_front(end)].emplace_back(path.substr(end), number);
        size_t dot = path.find('.', end);
        end = dot == StringRef::npos ? dot : dot + 1;
      }
    }
    ++number;
  }
  std::map<std::vector<std::pair<StringRef, unsigned>>, unsigned> kinds;
  for (auto &[owner, keys] : contents) {
    llvm::sort(keys);
    owners[owner] = kinds.try_emplace(keys, kinds.size() + 1).first->second;
  }
}

/// Paths may lead to one attribute if this is the same of both.
Place Tracer::getPlace(StringAttr path) {
  auto [owner, name] = path.getValue().rsplit('.');
  if (name.empty())
    return {owners.lookup(""), path};
  return {owners.lookup((owner + ".").str()),
          StringAttr::get(path.getContext(), name)};
}

/// What the attribute at `path` holds, from now on.
Tracer::Cell &Tracer::getAttribute(StringAttr path) {
  SmallVector<StringAttr, 1> &known = places[getPlace(path)];
  if (!llvm::is_contained(known, path))
    known.push_back(path);
  return attributes[path];
}

/// Forgets what `paths` hold. False if nobody knows whether that frees what was
/// assigned there.
bool Tracer::forget(ArrayRef<StringAttr> paths) {
  bool isKnown = true;
  for (StringAttr path : paths) {
    Cell cell = attributes.lookup(path);
    attributes.erase(path);
    isKnown &= !assigned.contains(path) ||
               (!cell.object &&
                (!cell.value || !mayHoldTensors(cell.value.getType())));
  }
  return isKnown;
}

/// Forgets what may be the attribute at `path` by another path.
bool Tracer::forgetOthers(StringAttr path) {
  SmallVector<StringAttr, 1> &known = places[getPlace(path)];
  SmallVector<StringAttr, 1> others = std::exchange(known, {});
  bool isThere = llvm::is_contained(others, path);
  llvm::erase(others, path);
  if (isThere)
    known.push_back(path);
  return forget(others);
}

/// Forgets all attributes of that name.
bool Tracer::forgetName(StringAttr name) {
  SmallVector<StringAttr> paths;
  for (auto &[place, known] : places)
    if (place.second == name) {
      assignedPlaces.insert(place);
      paths.append(std::exchange(known, {}));
    }
  return forget(paths);
}

//===----------------------------------------------------------------------===//
// Tensors of attributes
//===----------------------------------------------------------------------===//

/// The tensor that the archive has there, if no gradient flows to it.
ParamOp Tracer::findWeight(StringAttr path) {
  ParamOp weight = weights.lookup(path);
  return weight && !weight.getRequiresGrad() ? weight : ParamOp();
}

/// What an attribute holds as long as the call assigned nothing: the archive's
/// tensor. Each call leaves one of the same size, on which no graph hangs, or
/// getLeft() says that this was wrong.
Value Tracer::readWeight(StringAttr path, Location loc) {
  ParamOp weight = findWeight(path);
  if (!weight)
    return {};
  taken[path] = describe(weight);
  auto read =
      ParamGetOp::create(builder, loc, weight.getType(), weight.getSymName());
  infer(read);
  return read.getResult();
}

static Held describeInitial(Attribute initial) {
  Held held;
  held.kind = Held::Kind::Unknown;
  if (auto tensor = dyn_cast_if_present<TypeAttr>(initial)) {
    auto type = cast<RankedTensorType>(tensor.getValue());
    held.kind = Held::Kind::Tensor;
    held.elementType = type.getElementType();
    for (int64_t extent : type.getShape())
      held.dims.push_back(DimExpr::constant(type.getContext(), extent));
  } else if (initial) {
    held.kind = Held::Kind::Literal;
    held.literal = initial;
  }
  return held;
}

/// What the last call has left in an attribute that this one has not assigned;
/// none if nobody knows.
std::optional<Tracer::Cell> Tracer::readHeld(AttrGetOp op) {
  StringAttr path = op.getPathAttr();
  Location loc = op.getLoc();
  if (runsUnknownCode || (turnsRecordingOn && !records) ||
      states.isAssignedElsewhere(getPlace(path), path))
    return std::nullopt;
  Held held = states.lookup(path);
  if (held.kind == Held::Kind::Archive) {
    if (Value weight = readWeight(path, loc))
      return Cell{weight};
    held = describeInitial(op->getAttr(kInitialAttr));
  }
  std::optional<Cell> cell = make(held, loc);
  if (cell)
    taken[path] = held;
  return cell;
}

/// A value that is like `held`. Tensors are further arguments of the trace.
std::optional<Tracer::Cell> Tracer::make(const Held &held, Location loc) {
  MLIRContext *context = builder.getContext();
  switch (held.kind) {
  case Held::Kind::Archive:
  case Held::Kind::Unknown:
    return std::nullopt;
  case Held::Kind::Literal: {
    Type type = TorchType::get(context, isa<UnitAttr>(held.literal) ? "NoneType"
                                                                    : "str");
    return Cell{makeConstant(held.literal, type, loc)};
  }
  case Held::Kind::Tuple: {
    Object *tuple = makeObject(held.type, Container::Tuple);
    for (const Held &element : held.elements) {
      auto cell = make(element, loc);
      if (!cell)
        return std::nullopt;
      hold(*cell);
      tuple->elements.push_back(*cell);
    }
    return Cell{Value(), tuple};
  }
  case Held::Kind::Tensor:
    break;
  }
  SmallVector<int64_t> extents;
  SmallVector<DimExprAttr> exprs;
  for (DimExpr dim : held.dims) {
    extents.push_back(dim.getConstant().value_or(ShapedType::kDynamic));
    exprs.push_back(dim.getAttr());
  }
  unsigned index = function.getNumArguments();
  auto attributes = builder.getDictionaryAttr(
      {builder.getNamedAttr(KoilaDialect::kDimsAttr,
                            DimsAttr::get(context, exprs)),
       builder.getNamedAttr(kLeftAttr, builder.getUnitAttr())});
  if (failed(function.insertArgument(
          index, RankedTensorType::get(extents, held.elementType), attributes,
          loc)))
    return std::nullopt;
  Value argument = function.getArgument(index);
  facts[argument].tensor = TensorInfo::contiguous(held.dims, held.elementType);
  return Cell{argument};
}

/// As what a call leaves; Archive if it is not contiguous.
Held Tracer::describe(ParamOp weight) {
  Held held;
  auto type = dyn_cast<RankedTensorType>(weight.getType());
  if (!type)
    return held;
  int64_t stride = 1;
  for (int64_t dim = type.getRank() - 1; dim >= 0; --dim) {
    int64_t extent = type.getDimSize(dim);
    if (extent != 1 && weight.getStrides()[dim] != stride)
      return held;
    stride *= extent;
  }
  held.kind = Held::Kind::Tensor;
  held.elementType = type.getElementType();
  for (int64_t extent : type.getShape())
    held.dims.push_back(DimExpr::constant(builder.getContext(), extent));
  return held;
}

/// Whether `dim` is the same in every trace.
static bool isOfProgram(DimExpr dim) {
  bool isOwn = !dim;
  if (dim)
    dim.forEachSymbol(
        [&](DimSymbol symbol) { isOwn |= symbol.getName().starts_with("_t"); });
  return !isOwn;
}

/// What a call leaves that assigns `cell`.
Held Tracer::describe(const Cell &cell) {
  Held held;
  held.kind = Held::Kind::Unknown;
  if (cell.object && cell.object->kind == Container::Tuple) {
    for (const Cell &element : cell.object->elements) {
      held.elements.push_back(describe(element));
      if (held.elements.back().kind == Held::Kind::Unknown)
        return held.elements.back();
    }
    held.kind = Held::Kind::Tuple;
    held.type = cell.object->type;
    return held;
  }
  if (!cell.value)
    return held;
  if (Attribute literal = getLiteral(cell.value)) {
    if (!isa<UnitAttr, IntegerAttr, StringAttr>(literal))
      return held;
    held.kind = Held::Kind::Literal;
    held.literal = literal;
    return held;
  }
  const std::optional<TensorInfo> &info = getInfo(cell.value).tensor;
  if (!info || !info->hasRank() || info->isContiguous() != TriBool::Yes ||
      !rules::isTorchType(info->elementType) ||
      !llvm::all_of(*info->dims, isOfProgram))
    return held;
  held.kind = Held::Kind::Tensor;
  held.elementType = info->elementType;
  held.dims = *info->dims;
  return held;
}

AttributeStates::LeftStates Tracer::getLeft() {
  AttributeStates::LeftStates left;
  bool mayBeAny = runsUnknownCode || wantsAll || (turnsRecordingOn && !records);
  auto add = [&](StringAttr path, const Held &found, bool isRead) {
    AttributeStates::Left &entry = left[path];
    entry.found = entry.left = found;
    entry.isRead = isRead;
    entry.op = assigned.lookup(path);
    entry.place = getPlace(path);
    entry.mayHaveGraph = mayBeAny || wantingPlaces.contains(entry.place);
    if (entry.op)
      entry.left = describe(attributes.lookup(path));
    if (entry.mayHaveGraph ||
        (!entry.op && assignedPlaces.contains(entry.place))) {
      entry.left = Held();
      entry.left.kind = Held::Kind::Unknown;
    }
  };
  for (const auto &[path, found] : taken)
    add(path, found, /*isRead=*/true);
  for (StringAttr path : llvm::make_first_range(assigned))
    if (!taken.contains(path))
      add(path, states.lookup(path), /*isRead=*/false);
  return left;
}

bool AttributeStates::update(const LeftStates &left) {
  bool isChanged = false;
  for (const auto &[path, entry] : left) {
    State &state = states[path];
    if (isFirst)
      state.afterFirst = entry.left;
    isChanged |= entry.isRead && !state.isFixed && !(entry.left == entry.found);
  }
  isFirst = false;
  for (const auto &[path, entry] : left) {
    State &state = states[path];
    if (!isChanged) {
      bool isLate = entry.isRead && state.changes > 0 && !state.isFixed &&
                    state.held.kind != Held::Kind::Unknown &&
                    (!state.afterFirst || !(*state.afterFirst == state.held));
      if (isLate && !late)
        late = entry.op;
      continue;
    }
    SmallVector<StringAttr, 1> &paths = assigned[entry.place];
    if (entry.op && !llvm::is_contained(paths, path))
      paths.push_back(path);
    if (state.isFixed || entry.left == entry.found)
      continue;
    bool isKnown = entry.left.kind != Held::Kind::Unknown;
    if (isKnown && state.changes++ == 0) {
      state.held = entry.left;
      continue;
    }
    bool isNumber = entry.found.literal && !isa<UnitAttr>(entry.found.literal);
    state.held = Held();
    if (isNumber || entry.mayHaveGraph || !entry.op || !entry.isRead) {
      state.held.kind = Held::Kind::Unknown;
      continue;
    }
    state.isFixed = true;
    if (!unsteady)
      unsteady = entry.op;
  }
  return isChanged;
}

void AttributeStates::merge(LeftStates &into, const LeftStates &other) {
  auto forget = [](Left &entry) {
    entry.left = Held();
    entry.left.kind = Held::Kind::Unknown;
  };
  // A way that neither reads nor assigns an attribute leaves what it was.
  for (auto &[path, entry] : into)
    if (!other.contains(path) && !(entry.left == entry.found))
      forget(entry);
  for (const auto &[path, entry] : other) {
    auto [place, isNew] = into.try_emplace(path, entry);
    Left &known = place->second;
    known.mayHaveGraph |= entry.mayHaveGraph;
    known.isRead |= entry.isRead;
    if (!known.op)
      known.op = entry.op;
    if (isNew ? !(entry.left == entry.found) : !(known.left == entry.left))
      forget(known);
  }
}

bool Tracer::executeAssignment(AttrSetOp op) {
  Cell cell = lookup(op.getValue());
  hold(cell);
  auto assign = [&](Cell &place) {
    Cell former = std::exchange(place, cell);
    if (former.object)
      release(former);
    else if (former.value)
      keep(former.value);
  };
  if (Value owner = op.getObject()) {
    Object *object = lookup(owner).object;
    // Of an object that nobody knows the path is a name only.
    if (!object)
      return forgetName(op.getPathAttr()) && copy(op);
    if (object->depth != depth)
      return false;
    assign(object->fields[op.getPathAttr()]);
    return true;
  }
  if (depth > 0)
    return false;
  // What goes first was there before the call, and is not counted. If the call
  // reads it and it has a graph, the operation says so.
  bool mayHaveGraph =
      records ? states.lookup(op.getPathAttr()).kind == Held::Kind::Unknown
              : turnsRecordingOn;
  if (mayHoldTensors(op.getValue().getType()) && mayHaveGraph && !copy(op))
    return false;
  if (records && mayWant(cell))
    wantingPlaces.insert(getPlace(op.getPathAttr()));
  assignedPlaces.insert(getPlace(op.getPathAttr()));
  bool isNone = cell.value && isa_and_nonnull<UnitAttr>(getLiteral(cell.value));
  if (!replaced && (isNone || mayHoldTensors(op.getValue().getType())))
    replaced = op;
  if (!forgetOthers(op.getPathAttr()))
    return false;
  assigned[op.getPathAttr()] = op;
  assign(getAttribute(op.getPathAttr()));
  return true;
}
