//===- TileAttribute.cpp - The tile as an attribute of a file -------------===//

#include "TileAttribute.h"
#include "../Boundary/DiagnosticJSON.h"
#include "Emit.h"
#include "StepGradients.h"
#include "koila/Dialect/Koila/Transforms/LoopTiles.h"
#include "koila/Target/TorchScript/TrainStep.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace koila;
using namespace koila::torchscript;
namespace tj = torch::jit;
using llvm::Twine;

/// Behind a number that is no tile: what one is.
static std::string describeTiles(std::optional<int64_t> largest) {
  std::string text = "; it is the samples per tile, a power of two";
  if (largest)
    text += " and " + std::to_string(*largest) +
            " at most; compile with a larger batch for larger tiles";
  return text;
}

//===----------------------------------------------------------------------===//
// Names
//===----------------------------------------------------------------------===//

std::string koila::torchscript::findTileAttribute(const tj::Module &module,
                                                  const std::string &method) {
  auto found = module.find_method(method);
  auto *function = found ? tj::tryToGraphFunction(found->function()) : nullptr;
  if (!function)
    return "";
  std::shared_ptr<tj::Graph> graph = function->graph();
  // The guard reads it before anything else: outside of all branches.
  for (const tj::Node *node : graph->nodes())
    if (node->kind() == c10::prim::GetAttr &&
        node->input() == graph->inputs()[0] &&
        node->output()->type()->kind() == c10::TypeKind::IntType &&
        llvm::StringRef(node->s(c10::attr::name)).starts_with(kTileAttribute))
      return node->s(c10::attr::name);
  return "";
}

/// Whether `method` is one that koila writes for `name`.
static bool belongsTo(llvm::StringRef method, llvm::StringRef name) {
  GuardedMethods own(name.str()), gradients(kGrads);
  return method == name || method == own.guarded || method == own.untiled ||
         (name == kTrainStep &&
          (method == kGrads || method == gradients.guarded ||
           method == gradients.untiled));
}

static std::string chooseName(const tj::Module &module,
                              const std::string &name) {
  for (const tj::Method &method : module.get_methods())
    if (!belongsTo(method.name(), name) &&
        findTileAttribute(module, method.name()) == kTileAttribute)
      return (kTileAttribute + "_" + name).str();
  return kTileAttribute.str();
}

//===----------------------------------------------------------------------===//
// Values
//===----------------------------------------------------------------------===//

/// What the report says of tiles; empty if nothing.
static std::string getTable(llvm::StringRef report) {
  llvm::Expected<llvm::json::Value> json = llvm::json::parse(report);
  const llvm::json::Object *all = json ? json->getAsObject() : nullptr;
  if (!json)
    llvm::consumeError(json.takeError());
  llvm::json::Object table;
  for (llvm::StringRef key :
       {"function", "device", "batch", "by_tile", "replan_bytes"})
    if (const llvm::json::Value *value = all ? all->get(key) : nullptr)
      table[key] = *value;
  if (!table.get("by_tile"))
    return "";
  std::string text;
  llvm::raw_string_ostream os(text);
  os << llvm::json::Value(std::move(table));
  return text;
}

std::string koila::torchscript::addTileAttribute(tj::Module &module,
                                                 func::FuncOp function,
                                                 const std::string &name,
                                                 bool own,
                                                 llvm::StringRef report) {
  auto tiled =
      function->getAttrOfType<DictionaryAttr>(KoilaDialect::kTiledAttr);
  if (!tiled)
    return "";
  int64_t tile = tiled.getAs<IntegerAttr>("tile").getInt();
  bool follows = false;
  for (auto loop : function.getBody().getOps<scf::ForOp>()) {
    if (!loop->hasAttr(kTilesAttr))
      continue;
    std::optional<LoopTiles> tiles = getLoopTiles(loop);
    if (!tiles || !llvm::isPowerOf2_64(tile) ||
        std::max(tiles->lookup(tile), tiles->least) != tiles->tile)
      refuse(loop.getLoc(),
             Twine("the tile of a loop is not that which its '") + kTilesAttr +
                 "' has for tile " + Twine(tile));
    follows = true;
  }
  if (!follows)
    return "";
  std::string attribute = chooseName(module, name);
  auto set = [&](const std::string &key, const c10::TypePtr &type,
                 const c10::IValue &value) {
    if (!module.hasattr(key))
      return module.register_attribute(key, type, value);
    if (!own || *module.attr(key).type() != *type)
      refuse(Twine("the module has an attribute '") + key +
             "', a name that koila needs for the tile of the program that it "
             "writes; rename that attribute");
    module.setattr(key, value);
  };
  set(attribute, c10::IntType::get(), tile);
  if (std::string table = getTable(report); !table.empty())
    set((attribute + kTableSuffix).str(), c10::StringType::get(), table);
  return attribute;
}

void koila::torchscript::applyTileAttribute(const tj::Module &module,
                                            func::FuncOp function,
                                            const std::string &path) {
  std::string attribute = findTileAttribute(module, function.getName().str());
  if (attribute.empty())
    return;
  int64_t tile = module.attr(attribute).toInt();
  std::optional<int64_t> largest = getLargestTile(function);
  if (tile < 1 || !llvm::isPowerOf2_64(tile) || (largest && tile > *largest))
    refuse(Twine("'") + path + "': " + attribute + " is " + Twine(tile) +
           describeTiles(largest));
  if (failed(setLoopTiles(function, tile)))
    refuse(Twine("'") + path +
           "' carries a koila module whose loops do not "
           "follow its tile; compile the original again");
}

//===----------------------------------------------------------------------===//
// Methods
//===----------------------------------------------------------------------===//

void koila::torchscript::requireTile(GraphEmitter &emitter,
                                     const std::string &attribute,
                                     func::FuncOp function) {
  using TorchValue = tj::Value;
  TorchValue *tile = emitter.readAttribute(attribute);
  TorchValue *others = emitter.call(
      "aten::__and__",
      {tile, emitter.call("aten::sub", {tile, emitter.integer(1)})});
  TorchValue *isTile =
      emitter.call("aten::__and__",
                   {emitter.call("aten::gt", {tile, emitter.integer(0)}),
                    emitter.call("aten::eq", {others, emitter.integer(0)})});
  std::optional<int64_t> largest = getLargestTile(function);
  if (largest)
    isTile = emitter.call(
        "aten::__and__",
        {isTile, emitter.call("aten::le", {tile, emitter.integer(*largest)})});
  auto raise = [&]() -> TorchValue * {
    TorchValue *words = emitter.constant("koila: " + attribute + " is ");
    for (TorchValue *part : {emitter.call("aten::str", tile),
                             emitter.constant(describeTiles(largest))})
      words = emitter.call("aten::add", {words, part});
    tj::Graph &graph = emitter.getGraph();
    graph.insertNode(graph.create(c10::prim::RaiseException,
                                  {words, emitter.constant(c10::IValue())}, 0));
    return nullptr;
  };
  emitter.branch(
      isTile, /*type=*/nullptr, []() -> TorchValue * { return nullptr; },
      raise);
}

/// The logarithms of powers of two, as long as they are positive, are right
/// when they are rounded.
tj::Value *GraphEmitter::emitLog2(TorchValue *value) {
  TorchValue *power = call(
      "aten::div", {call("aten::log", value), constant(0.693147180559945309)});
  return call("aten::Int", call("aten::add", {power, constant(0.5)}));
}

void GraphEmitter::readTile(llvm::StringRef attribute) {
  tile = readAttribute(attribute);
  tilePower = emitLog2(tile);
}

std::pair<tj::Value *, tj::Value *> GraphEmitter::emitTile(Operation *op) {
  std::optional<LoopTiles> tiles =
      tile && op->hasAttr(kTilesAttr) ? getLoopTiles(op) : std::nullopt;
  if (!tiles)
    return {};
  int64_t leastPower = llvm::Log2_64(tiles->least);
  auto isCommon = [](const auto &entry) {
    return entry.value() <= int64_t(1) << entry.index();
  };
  // With tiles of its own the loop has a table; mostly it is all as it is.
  bool hasTable = !llvm::all_of(llvm::enumerate(tiles->table), isCommon) &&
                  tiles->table.size() > 1;
  TorchValue *own = tile, *power = tilePower;
  if (hasTable) {
    TorchValue *last = integer(static_cast<int64_t>(tiles->table.size()) - 1);
    own = call("aten::__getitem__", {integerList(tiles->table),
                                     call("prim::min", {tilePower, last})});
    own = call("prim::max", {tile, own});
    power = emitLog2(own);
  } else if (tiles->least > 1) {
    own = call("prim::max", {tile, integer(tiles->least)});
    power = call("prim::max", {tilePower, integer(leastPower)});
  }
  return {own, call("aten::sub", {power, integer(leastPower - 1)})};
}
