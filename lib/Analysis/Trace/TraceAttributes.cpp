//===- TraceAttributes.cpp - Attributes that a traced call assigns --------===//
//
// A call may read what it assigned before. What it reads first is as the
// archive has it, as long as each call leaves it so.
//
//===----------------------------------------------------------------------===//

#include "Tracer.h"
#include "koila/Analysis/Storage.h"
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
    Value value = readWeight(op);
    if (value)
      bind(op.getResult(), {value});
    else if (Operation *made = copy(op))
      value = made->getResult(0);
    if (value && depth == 0)
      getAttribute(op.getPathAttr()) = {value};
    return value != nullptr;
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
Tracer::Place Tracer::getPlace(StringAttr path) {
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
    if (place.second == name)
      paths.append(std::exchange(known, {}));
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
/// findChanged() says that this was wrong.
Value Tracer::readWeight(AttrGetOp op) {
  if (!isa<TensorType>(op.getResult().getType()) || runsUnknownCode ||
      (turnsRecordingOn && !records) || changing.contains(op.getPathAttr()))
    return {};
  ParamOp weight = findWeight(op.getPathAttr());
  if (!weight)
    return {};
  taken[op.getPathAttr()] = weight;
  auto read = ParamGetOp::create(builder, op.getLoc(), weight.getType(),
                                 weight.getSymName());
  infer(read);
  return read.getResult();
}

/// Whether both are contiguous, and of one size and type.
bool Tracer::isLike(const Cell &cell, ParamOp weight) {
  if (!cell.value || !weight ||
      isa_and_nonnull<UnitAttr>(getLiteral(cell.value)))
    return false;
  const std::optional<TensorInfo> &info = getInfo(cell.value).tensor;
  auto type = dyn_cast<RankedTensorType>(weight.getType());
  if (!info || !info->hasRank() || !type ||
      info->elementType != type.getElementType() ||
      info->getRank() != type.getRank() || info->isContiguous() != TriBool::Yes)
    return false;
  int64_t stride = 1;
  for (int64_t dim = type.getRank() - 1; dim >= 0; --dim) {
    int64_t extent = type.getDimSize(dim);
    if (!info->dim(dim).isConstant(extent) ||
        (extent != 1 && weight.getStrides()[dim] != stride))
      return false;
    stride *= extent;
  }
  return true;
}

AttributePaths Tracer::findChanged() {
  AttributePaths changed;
  bool mayBeAny = runsUnknownCode || wantsAll || (turnsRecordingOn && !records);
  for (const auto &[path, weight] : taken)
    if (mayBeAny || unsteady.contains(getPlace(path)))
      changed.insert(path);
  return changed;
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
      records ? changing.contains(op.getPathAttr()) : turnsRecordingOn;
  if (mayHoldTensors(op.getValue().getType()) && mayHaveGraph && !copy(op))
    return false;
  if (records && mayWant(cell))
    unsteady.insert(getPlace(op.getPathAttr()));
  bool isNone = cell.value && isa_and_nonnull<UnitAttr>(getLiteral(cell.value));
  if (!replaced && (isNone || mayHoldTensors(op.getValue().getType())))
    replaced = op;
  if (!isLike(cell, findWeight(op.getPathAttr())))
    unsteady.insert(getPlace(op.getPathAttr()));
  if (!forgetOthers(op.getPathAttr()))
    return false;
  assigned.insert(op.getPathAttr());
  assign(getAttribute(op.getPathAttr()));
  return true;
}
