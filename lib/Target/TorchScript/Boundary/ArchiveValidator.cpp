//===- ArchiveValidator.cpp - Small records of an archive, checked --------===//
//
// Records are unpacked by LibTorch's own reader, so that what is checked is
// what will be loaded.
//
//===----------------------------------------------------------------------===//

#include "ArchiveValidator.h"
#include "koila/Target/PyTorchArchive/CodeNestingLimit.h"
#include "koila/Target/PyTorchArchive/Pickle.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/CRC.h"
#include <c10/core/Device.h>
#include <caffe2/serialize/inline_container.h>
#include <set>
#include <torch/csrc/jit/runtime/operator.h>
#include <torch/custom_class.h>
#include <torch/version.h>

using namespace koila::torchscript;
using llvm::StringRef;
using llvm::Twine;

/// Far above what people write and PyTorch prints, far below what LibTorch
/// overflows a stack of 8 MiB with: 2000 to 4000 blocks or conditions.
static constexpr unsigned kMaxNesting = 500;

/// Versions that archives say they are of.
static void checkVersion(const Archive &archive, const Directory &directory,
                         StringRef bytes) {
  const Record *record = directory.lookup(".data/version");
  if (!record)
    record = directory.lookup("version");
  if (!record)
    refuseFile(archive.path, "is damaged: record 'version' is missing; copy or "
                             "save it again");
  auto text = getStored(*record, bytes);
  if (!text)
    return;
  uint64_t version;
  if (text->trim().getAsInteger(10, version))
    refuseFile(archive.path, "is damaged: record 'version' holds no number; "
                             "copy or save it again");
  constexpr uint64_t kOldest =
      caffe2::serialize::kMinSupportedFileFormatVersion;
  constexpr uint64_t kNewest =
      caffe2::serialize::kMaxSupportedFileFormatVersion;
  if (version < kOldest)
    refuseFile(archive.path,
               Twine("is of version ") + Twine(version) +
                   " of the format, and this PyTorch (" TORCH_VERSION
                   ") reads version " +
                   Twine(kOldest) +
                   " and later; load it with the PyTorch that wrote it, and "
                   "save it again with a later one");
  if (version > kNewest)
    refuseFile(archive.path,
               Twine("is of version ") + Twine(version) +
                   " of the format, and this PyTorch (" TORCH_VERSION
                   ") reads up to version " +
                   Twine(kNewest) +
                   "; save it again with this version, or build koila with "
                   "the PyTorch that wrote it");
}

[[noreturn]] static void refuseQuantised(const Archive &archive,
                                         const Twine &what) {
  refuseFile(archive.path,
             Twine("is quantised (") + what +
                 "), and koila knows float programs only; save the model as it "
                 "was before it was converted (torch.ao.quantization.convert)");
}

[[noreturn]] static void refuseMissing(const Archive &archive,
                                       const Twine &what, StringRef library) {
  refuseFile(archive.path,
             Twine("uses the custom ") + what +
                 ", and no library that registers '" + library +
                 "' is loaded; name the library with --load-library=FILE (the "
                 "one that Python loads with torch.ops.load_library), or save "
                 "the model without it");
}

static void checkNesting(const Archive &archive, StringRef record,
                         unsigned nesting) {
  if (nesting > kMaxNesting)
    refuseFile(archive.path,
               Twine("nests too deeply: record '") + record + "' has " +
                   Twine(nesting) +
                   " levels, and LibTorch, which recurses, is "
                   "given up to " +
                   Twine(kMaxNesting) +
                   "; split the expression, or save it again if it is damaged");
}

static void checkCode(const Archive &archive, StringRef record,
                      StringRef text) {
  CodeSummary code = readCode(text);
  checkNesting(archive, record, code.nesting);
  for (const auto &entry : code.operators)
    if (entry.getKey().starts_with("quantized::"))
      refuseQuantised(archive,
                      Twine("'") + record + "' calls " + entry.getKey());
  for (StringRef name : {"quantize_per_tensor", "quantize_per_channel",
                         "quantize_per_tensor_dynamic"})
    if (code.words.contains(name))
      refuseQuantised(archive, Twine("'") + record + "' calls " + name);
  for (const auto &entry : code.operators)
    if (entry.getKey().starts_with("prim::ConstantMKLDNNTensor"))
      refuseFile(archive.path,
                 "was saved after torch.jit.optimize_for_inference, whose "
                 "weights PyTorch does not write, so that nothing loads it; "
                 "save the model as it was before that");
  // Both are needed for either to run: __setstate__ at load, __getstate__ when
  // the program is saved.
  for (StringRef name : {"__setstate__", "__getstate__"})
    if (code.words.contains(name) && !getAllowSetState())
      refuseFile(archive.path,
                 Twine("runs code at load: ") + record + " has a " + name +
                     " method; save the model without custom serialisation "
                     "(no __getstate__/__setstate__), or, if you trust the "
                     "file, give --allow-setstate");
  for (const auto &entry : code.operators) {
    auto symbol = c10::Symbol::fromQualString(entry.getKey().str());
    if (torch::jit::getAllOperatorsFor(symbol).empty())
      refuseMissing(archive, "operator '" + entry.getKey() + "'",
                    entry.getKey().split(':').first);
  }
  for (const auto &entry : code.customClasses)
    if (!torch::getCustomClass("__torch__.torch.classes." +
                               entry.getKey().str()))
      refuseMissing(archive, "class '" + entry.getKey() + "'",
                    entry.getKey().split('.').first);
}

static void checkPickle(const Archive &archive, const Directory &directory,
                        StringRef record, StringRef text) {
  std::string error;
  std::optional<PickleSummary> pickle = readPickle(text, error);
  if (!pickle)
    refuseFile(archive.path, Twine("is damaged: in record '") + record + "', " +
                                 error + "; copy or save it again");
  checkNesting(archive, record, pickle->nesting);
  for (const std::string &name : pickle->globals)
    if (StringRef(name).contains("torch.classes.quantized.") ||
        StringRef(name).ends_with("._rebuild_qtensor"))
      refuseQuantised(archive, Twine("'") + record + "' holds " + name);
  if (!record.consume_back(".pkl"))
    return;
  // Of recorded inputs, sizes are stored and bytes are not.
  bool hasBytes = record != "traced_inputs";
  for (const PickleSummary::Storage &storage : pickle->storages) {
    if (!hasBytes || storage.elements == 0)
      continue;
    std::string name = (record + "/" + storage.key).str();
    const Record *bytes = directory.lookup(name);
    if (!bytes)
      refuseFile(archive.path, Twine("is damaged: record '") + name +
                                   "' is missing; copy or save it again");
    // LibTorch believes the number of elements.
    uint64_t size = getElementSize(storage.type).value_or(1);
    if (static_cast<uint64_t>(storage.elements) > bytes->size / size)
      refuseFile(archive.path, Twine("is damaged: record '") + name +
                                   "' is too short for the tensor in it; copy "
                                   "or save it again");
  }
}

std::string koila::torchscript::findDevice(const Archive &archive) {
  std::set<std::string> devices;
  caffe2::serialize::PyTorchStreamReader reader(archive.path);
  for (const char *name : {"data.pkl", "constants.pkl", "traced_inputs.pkl"}) {
    // Examples say it of what has no weights.
    bool isNeeded = StringRef(name) != "traced_inputs.pkl" || devices.empty();
    if (!isNeeded || !archive.hasRecord(name))
      continue;
    auto [bytes, size] = reader.getRecord(name);
    std::string error;
    auto pickle =
        readPickle({static_cast<const char *>(bytes.get()), size}, error);
    if (pickle)
      for (const PickleSummary::Storage &storage : pickle->storages)
        // Numbers, and constants of a trace, may be on the CPU beside a device.
        if (storage.device != "cpu" ||
            (StringRef(name) == "data.pkl" && storage.elements > 1))
          devices.insert(storage.device.str());
  }
  if (devices.empty())
    return "cpu";
  // All would be loaded to one.
  if (devices.size() > 1)
    refuseFile(archive.path,
               Twine("holds tensors on ") + llvm::join(devices, " and ") +
                   ", and koila's programs run on one device; move the model "
                   "to one of them and save it again");
  const std::string &name = *devices.begin();
  bool isKnown = false;
  try {
    isKnown = c10::Device(name).type() != c10::kMeta;
  } catch (const c10::Error &) {
    // Reported below.
  }
  if (!isKnown)
    refuseFile(archive.path, Twine("holds tensors on '") + name +
                                 "', which are not read; save it again on the "
                                 "CPU: torch.jit.save(m.cpu(), ...)");
  return name;
}

void koila::torchscript::checkContents(const Archive &archive,
                                       const Directory &directory,
                                       StringRef bytes) {
  checkVersion(archive, directory, bytes);
  for (StringRef name : {"data.pkl", "constants.pkl"})
    if (!directory.lookup(name))
      refuseFile(archive.path, Twine("is damaged: record '") + name +
                                   "' is missing; copy or save it again");
  caffe2::serialize::PyTorchStreamReader reader(archive.path);
  for (const Record &record : directory.records) {
    at::DataPtr unpacked;
    StringRef text = getStored(record, bytes).value_or("");
    if (record.compressed) {
      unpacked = std::get<0>(reader.getRecord(record.name));
      text = {static_cast<const char *>(unpacked.get()), record.size};
    }
    // LibTorch reads past it, and would write the damage with a right one.
    if (llvm::crc32(llvm::arrayRefFromStringRef(text)) != record.checksum)
      refuseFile(archive.path, Twine("is damaged: the checksum of record '") +
                                   record.name +
                                   "' is wrong; copy or save it again");
    std::string name = StringRef(record.name).lower();
    bool code = StringRef(name).starts_with("code/");
    bool pickle = name == "data.pkl" || name == "constants.pkl" ||
                  name == "traced_inputs.pkl" ||
                  (code && StringRef(name).ends_with(".debug_pkl"));
    if (pickle)
      checkPickle(archive, directory, name, text);
    else if (code)
      checkCode(archive, record.name, text);
  }
  (void)findDevice(archive);
}
