//===- TileAttribute.cpp - The tile as an attribute of a file -------------===//

#include "TileAttribute.h"
#include "../Boundary/DiagnosticJSON.h"
#include "StepGradients.h"
#include "koila/Dialect/Koila/Transforms/FilePlans.h"
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

/// Behind a number that is no plan: what one is.
static std::string describePlans(int64_t plans) {
  return "; it is the place of a plan, 0 to " + std::to_string(plans - 1);
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
static bool belongsTo(const std::string &method, const std::string &name) {
  GuardedMethods own(name);
  return method == name || method == own.untiled ||
         llvm::is_contained(own.listGuarded(), method) ||
         (name == kTrainStep &&
          llvm::is_contained(getGradientMethods(), method));
}

/// The attribute of the plan beside that of the tile.
static std::string getPlanAttribute(llvm::StringRef tileAttribute) {
  return (kPlanAttribute + tileAttribute.drop_front(kTileAttribute.size()))
      .str();
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
  auto copy = [&](llvm::ArrayRef<llvm::StringRef> keys) {
    for (llvm::StringRef key : keys)
      if (const llvm::json::Value *value = all ? all->get(key) : nullptr)
        table[key] = *value;
  };
  copy({"function", "device", "batch", "plans"});
  if (!table.get("plans"))
    copy({"by_tile", "replan_bytes"});
  if (!table.get("plans") && !table.get("by_tile"))
    return "";
  std::string text;
  llvm::raw_string_ostream os(text);
  os << llvm::json::Value(std::move(table));
  return text;
}

/// Whether loops of `function` follow its tile.
static bool followsTile(func::FuncOp function, int64_t tile) {
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
  return follows;
}

static int64_t getTile(func::FuncOp function) {
  return function->getAttrOfType<DictionaryAttr>(KoilaDialect::kTiledAttr)
      .getAs<IntegerAttr>("tile")
      .getInt();
}

TileAttributes koila::torchscript::addTileAttributes(
    tj::Module &module, llvm::ArrayRef<func::FuncOp> plans, int64_t place,
    const std::string &name, bool own, llvm::StringRef report) {
  if (!plans.front()->hasAttr(KoilaDialect::kTiledAttr))
    return {};
  bool follow = true;
  for (func::FuncOp plan : plans)
    follow &= followsTile(plan, getTile(plan));
  if (!follow)
    return {};
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
  TileAttributes attributes{chooseName(module, name), "",
                            static_cast<int64_t>(plans.size())};
  set(attributes.tile, c10::IntType::get(), getTile(plans[place]));
  if (plans.size() > 1) {
    attributes.plan = getPlanAttribute(attributes.tile);
    set(attributes.plan, c10::IntType::get(), place);
  }
  if (std::string table = getTable(report); !table.empty())
    set((attributes.tile + kTableSuffix).str(), c10::StringType::get(), table);
  return attributes;
}

/// Throws Refusal unless the file at `path` has one of the plans.
static void applyPlan(const tj::Module &module, OwningOpRef<ModuleOp> &carried,
                      const std::string &attribute, const std::string &path) {
  auto count = static_cast<int64_t>(getPlans(*carried).size());
  if (count == 1)
    return;
  if (!module.hasattr(attribute) || !module.attr(attribute).isInt())
    refuse(Twine("'") + path + "' carries several plans, and has no '" +
           attribute + "'; compile the original again");
  int64_t plan = module.attr(attribute).toInt();
  if (!selectPlan(carried, plan))
    refuse(Twine("'") + path + "': " + attribute + " is " + Twine(plan) +
           describePlans(count));
}

void koila::torchscript::applyTileAttributes(const tj::Module &module,
                                             OwningOpRef<ModuleOp> &carried,
                                             const std::string &method,
                                             const std::string &path) {
  std::string attribute = findTileAttribute(module, method);
  if (attribute.empty())
    return;
  applyPlan(module, carried, getPlanAttribute(attribute), path);
  auto function = carried->lookupSymbol<func::FuncOp>(method);
  int64_t tile = module.attr(attribute).toInt();
  std::optional<int64_t> largest =
      function ? getLargestTile(function) : std::nullopt;
  if (tile < 1 || !llvm::isPowerOf2_64(tile) || (largest && tile > *largest))
    refuse(Twine("'") + path + "': " + attribute + " is " + Twine(tile) +
           describeTiles(largest));
  if (!function || failed(setLoopTiles(function, tile)))
    refuse(Twine("'") + path +
           "' carries a koila module whose loops do not "
           "follow its tile; compile the original again");
}

//===----------------------------------------------------------------------===//
// Methods
//===----------------------------------------------------------------------===//

/// Emits what raises unless `holds`: that `value`, of `attribute`, is wrong.
static void require(GraphEmitter &emitter, tj::Value *holds,
                    const std::string &attribute, tj::Value *value,
                    const std::string &what) {
  using TorchValue = tj::Value;
  auto raise = [&]() -> TorchValue * {
    TorchValue *words = emitter.constant("koila: " + attribute + " is ");
    for (TorchValue *part :
         {emitter.call("aten::str", value), emitter.constant(what)})
      words = emitter.call("aten::add", {words, part});
    tj::Graph &graph = emitter.getGraph();
    graph.insertNode(graph.create(c10::prim::RaiseException,
                                  {words, emitter.constant(c10::IValue())}, 0));
    return nullptr;
  };
  emitter.branch(
      holds, /*type=*/nullptr, []() -> TorchValue * { return nullptr; }, raise);
}

void koila::torchscript::requireTile(GraphEmitter &emitter,
                                     const TileAttributes &attributes,
                                     func::FuncOp function) {
  using TorchValue = tj::Value;
  TorchValue *tile = emitter.readAttribute(attributes.tile);
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
  require(emitter, isTile, attributes.tile, tile, describeTiles(largest));
  if (attributes.plan.empty())
    return;
  TorchValue *plan = emitter.readAttribute(attributes.plan);
  TorchValue *isPlan = emitter.call(
      "aten::__and__",
      {emitter.call("aten::ge", {plan, emitter.integer(0)}),
       emitter.call("aten::lt", {plan, emitter.integer(attributes.plans)})});
  require(emitter, isPlan, attributes.plan, plan,
          describePlans(attributes.plans));
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
