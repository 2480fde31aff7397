//===- Emit.cpp - From the dialect to a TorchScript archive ---------------===//
//
// The archive that the program came from is loaded again and its module tree
// copied, sharing every tensor; one method gets a new graph. So parameters,
// state dict, submodules and other methods stay what they were.
//
//===----------------------------------------------------------------------===//

#include "Emit.h"
#include "../Boundary/DiagnosticJSON.h"
#include "../Boundary/Locations.h"
#include "../Import/Graph.h"
#include "OldForms.h"
#include "ReadBack.h"
#include "ReplaceMethod.h"
#include "Reproducible.h"
#include "StepGradients.h"
#include "TileAttribute.h"
#include "koila/Analysis/Storage.h"
#include "koila/Dialect/Koila/IR/CopyOps.h"
#include "koila/Dialect/Koila/IR/LossOps.h"
#include "koila/Dialect/Koila/Transforms/FilePlans.h"
#include "koila/Support/OutputFile.h"
#include "koila/Target/TorchScript/TrainStep.h"
#include "koila/Target/TorchScript/Types.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "llvm/ADT/ScopeExit.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/raw_ostream.h"
#include <torch/csrc/jit/serialization/export.h>

using namespace mlir;
using namespace koila;
using namespace koila::torchscript;
namespace tj = torch::jit;
using llvm::Twine;
namespace fs = llvm::sys::fs;

//===----------------------------------------------------------------------===//
// The module
//===----------------------------------------------------------------------===//

/// Refuses weights of another model.
static void checkWeights(ModuleOp module, const tj::Module &source,
                         const std::string &path) {
  llvm::StringMap<at::Tensor> tensors;
  for (const auto &named : source.named_parameters())
    tensors[named.name] = named.value;
  for (const auto &named : source.named_buffers())
    tensors[named.name] = named.value;
  MLIRContext *context = module.getContext();
  for (auto param : module.getOps<ParamOp>()) {
    for (auto key : param.getKeys().getAsRange<StringAttr>()) {
      auto it = tensors.find(key.getValue());
      if (it == tensors.end())
        refuse(Twine("'") + path + "' has no tensor '" + key.getValue() +
               "', which the program needs");
      Type found = getTensorType(it->second, context);
      if (found == param.getType())
        continue;
      std::string text;
      llvm::raw_string_ostream os(text);
      os << "'" << key.getValue() << "' in '" << path << "' is " << found
         << ", and the program was compiled for " << param.getType();
      refuse(text);
    }
  }
}

/// Whether another value that shares storage with what `op` writes is read
/// after it. Import leaves no such reader, but a pass that merges equal
/// operations may.
static bool hasLaterReader(TorchOpaqueOp op, Value written,
                           const StorageAnalysis &storages) {
  const Storage *storage = storages.lookup(written);
  if (!storage || storage->external)
    return false;
  auto isBefore = [&](Operation *other) {
    return other && other->getBlock() == op->getBlock() &&
           other->isBeforeInBlock(op);
  };
  // Everything that shows the old contents: the operand, what it is a view
  // of, and other views of that. What comes later shows the new contents.
  llvm::SetVector<Value> stale;
  stale.insert(written);
  auto push = [&](Value value) {
    if (storages.lookup(value) == storage)
      stale.insert(value);
  };
  for (size_t i = 0; i < stale.size(); ++i) {
    Value value = stale[i];
    if (Operation *producer = value.getDefiningOp())
      llvm::for_each(producer->getOperands(), push);
    for (Operation *user : value.getUsers()) {
      if (user == op.getOperation())
        continue;
      if (isBefore(user)) {
        llvm::for_each(user->getResults(), push);
        continue;
      }
      return true;
    }
  }
  return false;
}

/// The operand that an opaque operator writes, by its schema; null if none.
static Value getWrittenOperand(TorchOpaqueOp op) {
  std::string name = op.getCallee().split('.').first.str();
  for (const auto &candidate :
       tj::getAllOperatorsFor(c10::Symbol::fromQualString(name))) {
    const c10::FunctionSchema &schema = candidate->schema();
    if (getQualifiedName(schema) != op.getCallee())
      continue;
    for (auto [argument, attr] :
         llvm::zip(schema.arguments(), op.getArguments())) {
      auto operand = dyn_cast<OperandAttr>(attr);
      if (operand && argument.alias_info() && argument.alias_info()->isWrite())
        return op->getOperand(operand.getIndex());
    }
  }
  return {};
}

/// Ties are permissions: withdraws those that tie resolution does not grant.
/// Opaque writes are orders: those that would clobber a tensor which is still
/// read get a copy to write to.
static void resolveWrites(func::FuncOp function,
                          llvm::SmallPtrSetImpl<Operation *> &copied) {
  DimAnalysis dims(function);
  StorageAnalysis storages(function, dims);
  llvm::SmallVector<TorchOperatorInterface> withdrawn;
  function.walk([&](Operation *op) {
    if (auto torchOp = dyn_cast<TorchOperatorInterface>(op)) {
      if (torchOp.isTied() && !isOrderedWrite(op) && !storages.mayReuse(op))
        withdrawn.push_back(torchOp);
    } else if (isa<tensor::InsertSliceOp>(op)) {
      // A buffer that is still read, or that another value shares (-cse merges
      // equal buffers), is copied before the slice is written.
      if (!storages.mayReuse(op))
        copied.insert(op);
    } else if (auto opaque = dyn_cast<TorchOpaqueOp>(op)) {
      // A marked write is an order to write this very tensor.
      if (opaque.getEffects() != Effects::Write || isOrderedWrite(op))
        return;
      if (Value written = getWrittenOperand(opaque))
        if (hasLaterReader(opaque, written, storages))
          copied.insert(op);
    }
  });
  for (TorchOperatorInterface op : withdrawn) {
    // Some, dropout outside training for one, hand the operand itself on
    // either way.
    auto noFacts = [](Value) { return ValueInfo(); };
    StorageRule storage(op, noFacts);
    if (auto memory = dyn_cast<MemoryRuleInterface>(op.getOperation()))
      memory.describeStorage(storage);
    if (llvm::all_of(storage.getResults(), [](const StorageFact &fact) {
          return fact.kind == StorageFact::Kind::Alias;
        }))
      continue;
    op.permitTie(false);
    // The in-place form keeps the type of what it writes; the other form
    // promotes.
    auto isUnknown = [](Type type) {
      auto tensor = dyn_cast<TensorType>(type);
      return tensor && isa<AnyType>(tensor.getElementType());
    };
    bool same = llvm::none_of(op->getOperandTypes(), isUnknown);
    if (same) {
      ScopedDiagnosticHandler quiet(op->getContext(),
                                    [](Diagnostic &) { return success(); });
      same = isa<ShapeRuleInterface>(op.getOperation()) &&
             succeeded(koila::detail::verifyShapeRule(op));
    }
    if (same)
      continue;
    // Then it writes a copy.
    op.permitTie(true);
    OpBuilder builder(op);
    Value self = op->getOperand(0);
    op->setOperand(0,
                   CloneTensorOp::create(builder, op.getLoc(), self.getType(),
                                         self, /*memory_format=*/nullptr));
  }
}

/// Shapes of recorded examples, which loading put into the types of a
/// method's arguments, as inputs to record; none unless all are there, and
/// `areKept`. The types become plain again: they hold for the examples only.
static std::vector<c10::IValue> takeExamples(tj::Graph &graph, bool areKept) {
  std::vector<c10::IValue> examples;
  bool complete = areKept;
  for (tj::Value *input : graph.inputs().slice(1)) {
    auto type = input->type()->cast<c10::TensorType>();
    if (!type) {
      complete = false;
      continue;
    }
    auto sizes = type->sizes().concrete_sizes();
    auto strides = type->strides().concrete_sizes();
    if (complete && sizes && strides && type->scalarType())
      examples.emplace_back(
          at::empty_strided(*sizes, *strides, *type->scalarType()));
    else
      complete = false;
    input->setType(c10::TensorType::get());
  }
  return complete ? examples : std::vector<c10::IValue>();
}

//===----------------------------------------------------------------------===//
// The file
//===----------------------------------------------------------------------===//

static void writeArchive(const tj::Module &module,
                         const tj::ExtraFilesMap &extraFiles,
                         llvm::raw_fd_ostream &os, const std::string &path) {
  tj::ExportModule(
      module,
      [&](const void *data, size_t size) {
        os.write(static_cast<const char *>(data), size);
        return size;
      },
      extraFiles);
  os.flush();
  if (os.has_error()) {
    std::string what = os.error().message();
    os.clear_error();
    refuse(Twine("cannot write '") + path + "' (" + Twine(os.tell()) +
           " bytes): " + what);
  }
}

/// Writes under a temporary name, compares, and only then takes the name.
static void store(const tj::Module &module, const tj::ExtraFilesMap &extraFiles,
                  const std::string &path, const Expectation &expectation,
                  const OperatorTable &operators, MLIRContext *context) {
  auto fail = [&](const Twine &why) {
    refuse(Twine("cannot write '") + path + "': " + why);
  };
  bool direct = isDeviceOrPipe(path);
  llvm::SmallString<128> beside(path);
  if (direct) {
    llvm::sys::path::system_temp_directory(/*ErasedOnReboot=*/true, beside);
    llvm::sys::path::append(beside, llvm::sys::path::filename(path));
  }
  auto temporary = createOutputFile(beside);
  if (!temporary)
    fail(llvm::toString(temporary.takeError()));
  auto discard =
      llvm::scope_exit([&] { llvm::consumeError(temporary->discard()); });
  {
    llvm::raw_fd_ostream os(temporary->FD, /*shouldClose=*/false);
    writeArchive(module, extraFiles, os, path);
  }
  verifyArchive(temporary->TmpName, expectation, operators, context);

  if (direct) {
    std::error_code error;
    llvm::raw_fd_ostream os(path, error, fs::CD_OpenExisting);
    if (error)
      fail(error.message());
    writeArchive(module, extraFiles, os, path);
    return;
  }
  discard.release();
  if (llvm::Error error = keepOutputFile(*temporary, path))
    fail(llvm::toString(std::move(error)));
}

/// The value that a literal of an assumption stands for; of a member of an enum
/// its name.
c10::IValue koila::torchscript::getAssumed(Attribute expected) {
  if (auto flag = dyn_cast<BoolAttr>(expected))
    return flag.getValue();
  if (auto integer = dyn_cast<IntegerAttr>(expected))
    return integer.getInt();
  if (auto number = dyn_cast<FloatAttr>(expected))
    return number.getValueAsDouble();
  if (auto text = dyn_cast<StringAttr>(expected))
    return text.str();
  if (auto integers = dyn_cast<DenseI64ArrayAttr>(expected))
    return std::vector<int64_t>(integers.asArrayRef());
  if (auto numbers = dyn_cast<DenseF64ArrayAttr>(expected))
    return std::vector<double>(numbers.asArrayRef());
  if (auto flags = dyn_cast<DenseBoolArrayAttr>(expected)) {
    c10::List<bool> list;
    for (bool flag : flags.asArrayRef())
      list.push_back(flag);
    return list;
  }
  if (auto tuple = dyn_cast<ArrayAttr>(expected)) {
    std::vector<c10::IValue> elements;
    for (Attribute element : tuple)
      elements.push_back(getAssumed(element));
    return c10::ivalue::Tuple::create(std::move(elements));
  }
  auto dict = dyn_cast<DictionaryAttr>(expected);
  if (auto texts = dict ? dict.getAs<ArrayAttr>("texts") : ArrayAttr()) {
    c10::List<std::string> list;
    for (auto text : texts.getAsValueRange<StringAttr>())
      list.push_back(text.str());
    return list;
  }
  if (auto member = dict ? dict.getAs<StringAttr>("member") : StringAttr())
    return member.str();
  if (dict) {
    c10::impl::GenericDict entries(c10::AnyType::get(), c10::AnyType::get());
    for (auto [key, value] : llvm::zip_equal(dict.getAs<ArrayAttr>("keys"),
                                             dict.getAs<ArrayAttr>("values")))
      entries.insert(getAssumed(key), getAssumed(value));
    return entries;
  }
  return c10::IValue();
}

/// What import took attributes to be.
static std::vector<AssumedAttribute>
getAssumedAttributes(func::FuncOp function) {
  std::vector<AssumedAttribute> assumed;
  for (auto op : function.getBody().front().getOps<AssumeOp>()) {
    if (op.getFact() != Fact::Attribute)
      continue;
    assumed.push_back({op.getPath()->str(), getAssumed(op.getExpected())});
  }
  return assumed;
}

static func::FuncOp getFunction(ModuleOp module) {
  return *module.getOps<func::FuncOp>().begin();
}

/// What is emitted of `module`, whose own plan is `function`: all plans by
/// their places.
static llvm::SmallVector<func::FuncOp> getPlanFunctions(ModuleOp module,
                                                        func::FuncOp function) {
  if (!function->hasAttr(KoilaDialect::kTiledAttr))
    return {function};
  llvm::SmallVector<func::FuncOp> functions;
  for (auto [place, plan] : llvm::enumerate(getPlans(module))) {
    auto own = plan.lookupSymbol<func::FuncOp>(function.getName());
    if (!own || getPlan(plan) != static_cast<int64_t>(place) ||
        place >= kMostPlans || !own->hasAttr(KoilaDialect::kTiledAttr))
      refuse(plan.getLoc(), Twine("is no plan of '") + function.getName() +
                                "' at place " + Twine(place));
    functions.push_back(own);
  }
  return functions;
}

/// Whether `method` had anything that LibTorch's reader drops.
static bool dropUnneeded(const tj::Method &method) {
  auto graph = tj::toGraphFunction(method.function()).graph();
  std::string before = getNormalForm(*graph);
  cleanUpGraph(graph);
  return getNormalForm(*graph) != before;
}

void koila::torchscript::rebuildMethod(
    ModuleOp module, func::FuncOp function, const Archive &archive,
    tj::Module &loaded, const OperatorTable &operators, bool isForFile,
    llvm::StringRef report, FinishModule finish,
    std::optional<ImportedFunction> imported) {
  std::string name = function.getName().str();
  bool isStep = module->hasAttr(kTrainStepAttr) && name == kTrainStep;
  if (auto step = getTrainStep(module)) {
    if (!loaded.find_method(name))
      if (auto why = addTrainStep(loaded, *step))
        refuse(*why);
    // What the loss does not need is gone once LibTorch has read the file.
    if (isForFile && dropUnneeded(loaded.get_method(name)))
      imported.reset();
  }
  // A file that koila tiled before has its original under another name.
  MLIRContext *context = module.getContext();
  bool guarded = isGuarded(function);
  llvm::SmallVector<func::FuncOp> plans = getPlanFunctions(module, function);
  GuardedMethods methods(name);
  llvm::SmallVector<std::string> newMethods{methods.untiled};
  for (size_t place = 0; place < plans.size(); ++place)
    newMethods.push_back(methods.getGuarded(place));
  bool wasTiled = archive.carries(name) && loaded.find_method(methods.untiled);
  std::string originalName = wasTiled ? methods.untiled : name;
  std::vector<AssumedAttribute> assumed = getAssumedAttributes(function);
  if (!imported || !assumed.empty())
    imported = importFunction(archive, loaded, originalName, operators, context,
                              assumed);
  const ImportedFunction &original = *imported;
  std::string originalText =
      isForFile ? getCanonicalText(*original.module) : "";
  llvm::StringMap<std::vector<c10::IValue>> examples;
  for (const tj::Method &method : loaded.get_methods())
    examples[method.name()] = takeExamples(
        *tj::toGraphFunction(method.function()).graph(), isForFile);

  auto write = [&](bool kept) {
    llvm::SmallPtrSet<Operation *, 4> copied;
    if (!kept)
      for (func::FuncOp plan : plans)
        resolveWrites(plan, copied);
    if (!kept && guarded && !wasTiled)
      for (const std::string &taken : newMethods)
        if (loaded.find_method(taken))
          refuse(Twine("the module has a method '") + taken +
                 "', a name that koila needs for the program that it writes; "
                 "rename that method");
    tj::Module result = loaded.clone(/*inplace=*/true);
    if (isForFile)
      for (auto &[method, inputs] : examples)
        result.store_traced_inputs(method.str(), inputs);
    if (!kept)
      replaceMethod(result, plans, name, original, operators, copied, isStep,
                    addTileAttributes(result, plans, getPlan(module), name,
                                      wasTiled, report));
    if (isStep && (kept || !guarded))
      addGradients(result, name, kGrads);

    Expectation expectation;
    if (!isForFile)
      return finish(result, expectation);
    giveCanonicalNames(result);
    expectation.normalForms.emplace_back(name,
                                         getMethodNormalForm(result, name));
    if (kept) {
      expectation.sameFunction = name;
    } else if (guarded) {
      for (const std::string &part : newMethods)
        expectation.normalForms.emplace_back(part,
                                             getMethodNormalForm(result, part));
      expectation.sameFunction = methods.untiled;
    } else if (copied.empty() && getCanonicalText(module) == originalText) {
      expectation.sameFunction = name;
    }
    expectation.canonicalText = originalText;
    for (const std::string &part : getGradientMethods())
      if (isStep && result.find_method(part))
        expectation.normalForms.emplace_back(part,
                                             getMethodNormalForm(result, part));

    finish(result, expectation);
  };
  // A program that no pass changed is kept as it is where building it anew
  // would need a guard, or comes back as another one: LibTorch folds some
  // branches when it reads a text.
  bool unchanged =
      !wasTiled && isSameProgram(function, getFunction(*original.module));
  if (unchanged && guarded)
    return write(/*kept=*/true);
  try {
    write(/*kept=*/false);
  } catch (const Refusal &) {
    if (!unchanged)
      throw;
    write(/*kept=*/true);
  }
}

/// Names the records that no TorchScript program has, which are not written.
static void warnOfDropped(const Archive &archive, MLIRContext *context) {
  constexpr llvm::StringRef kFolders[] = {
      "code/", "data/", "constants/", "traced_inputs/", "extra/", ".data/"};
  constexpr llvm::StringRef kRecords[] = {
      "data.pkl",  "constants.pkl",   "traced_inputs.pkl", "version",
      "byteorder", ".format_version", ".storage_alignment"};
  llvm::SmallVector<std::string> dropped;
  for (llvm::StringRef record : archive.records)
    if (!llvm::is_contained(kRecords, record) &&
        llvm::none_of(kFolders, [&](llvm::StringRef folder) {
          return record.starts_with(folder);
        }))
      dropped.push_back("'" + record.str() + "'");
  if (dropped.empty())
    return;
  bool lite = archive.hasRecord("bytecode.pkl");
  emitWarning(UnknownLoc::get(context))
      << "'" << archive.path
      << "' has records that the output has not: " << llvm::join(dropped, ", ")
      << (lite ? "; the lite interpreter needs its bytecode: load the output "
                 "and save it with _save_for_lite_interpreter"
               : "");
}

void koila::torchscript::emitModule(ModuleOp module, const EmitOptions &options,
                                    const OperatorTable &operators,
                                    std::optional<LoadedProgram> kept) {
  upgradeOldForms(module);
  auto source = module->getAttrOfType<ArchiveAttr>(KoilaDialect::kArchiveAttr);
  if (!source && options.weightsPath.empty())
    refuse("the module does not say which archive its weights are in "
           "(koila.archive); name one with --weights=FILE.pt");
  std::string name = source ? source.getFunction().str() : "forward";
  auto function = module.lookupSymbol<func::FuncOp>(name);
  if (!function)
    refuse(module.getLoc(), Twine("the module has no function '") + name + "'");

  bool replaced = !options.weightsPath.empty();
  if (!replaced && !fs::exists(source.getPath()))
    refuse(Twine("'") + source.getPath() +
           "', which the module was imported from, is not there; name the "
           "archive with --weights=FILE.pt");
  if (kept &&
      (replaced || kept->function != name ||
       kept->archive.path != source.getPath() || !isUnchanged(kept->archive)))
    kept.reset();
  Archive archive = kept       ? kept->archive
                    : replaced ? inspectArchive(options.weightsPath)
                               : inspectArchive(source.getPath().str());
  if (!replaced && archive.fingerprint != source.getFingerprint())
    refuse(Twine("'") + archive.path +
           "' was changed since it was imported; "
           "import it again, or name the file with --weights=FILE.pt if only "
           "weights differ");
  // What the archive carries of other methods stays, and what the user put in.
  tj::ExtraFilesMap others =
      kept ? std::move(kept->extraFiles) : getExtraFiles(archive);
  warnOfDropped(archive, module.getContext());
  tj::Module loaded =
      kept ? kept->module
           : loadArchive(archive, others, /*restoreExamples=*/true);
  std::optional<ImportedFunction> imported;
  if (kept)
    imported = std::move(kept->imported);
  if (replaced)
    checkWeights(module, loaded, archive.path);

  CarriedFiles carried(name);
  std::string path = source ? source.getPath().str() : archive.path;
  std::string bytecode = getPortableBytecode(module, path);
  auto finish = [&](const tj::Module &result, const Expectation &expectation) {
    tj::ExtraFilesMap extraFiles = others;
    extraFiles[carried.module] = bytecode;
    extraFiles[carried.fingerprint] =
        getFunctionFingerprint(result, name, expectation.normalForms);
    if (!options.reportJson.empty())
      extraFiles[kReportFile] = extraFiles[carried.report] =
          getPortableReport(options.reportJson, path);
    store(result, extraFiles, options.outputPath, expectation, operators,
          module.getContext());
  };
  rebuildMethod(module, function, archive, loaded, operators,
                /*isForFile=*/true, options.reportJson, finish,
                std::move(imported));
}
