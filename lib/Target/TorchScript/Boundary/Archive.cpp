//===- Archive.cpp - TorchScript archives before they are loaded ----------===//
//
// A file is judged by its directory and its small records first: LibTorch's own
// messages for wrong files speak of its internals, and loading may run code.
//
//===----------------------------------------------------------------------===//

#include "Archive.h"
#include "ArchiveValidator.h"
#include "DiagnosticJSON.h"
#include "TracedDevices.h"
#include "koila/Support/FileKind.h"
#include "koila/Target/PyTorchArchive/ZipCentralDirectory.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include <caffe2/serialize/inline_container.h>
#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/ir/graph_utils.h>
#include <torch/csrc/jit/serialization/import.h>
#include <torch/csrc/jit/serialization/import_read.h>
#include <torch/version.h>

using namespace koila::torchscript;
using llvm::StringRef;
using llvm::Twine;

static bool allowSetState = false;

void koila::torchscript::setAllowSetState(bool allow) { allowSetState = allow; }

bool koila::torchscript::getAllowSetState() { return allowSetState; }

bool Archive::hasRecord(StringRef name) const {
  return llvm::is_contained(records, name);
}

std::string koila::torchscript::getFirstLine(const std::exception &error) {
  std::string text = error.what();
  if (auto *torchError = dynamic_cast<const c10::Error *>(&error))
    text = torchError->what_without_backtrace();
  // LibTorch puts the message first and an excerpt of the program after it.
  for (StringRef line : llvm::split(text, '\n'))
    if (!line.trim().empty())
      return line.trim().rtrim(":").str();
  return "unknown error";
}

/// Refuses files that are no zip archive, with what they are instead.
static void checkMagic(StringRef path, StringRef bytes) {
  if (bytes.empty())
    refuseFile(path, "is empty; copy or save it again");
  if (auto kind = koila::describeForeignFile(bytes))
    refuseFile(path, *kind);
  if (!bytes.starts_with("PK\x03\x04"))
    refuseFile(path, Twine("is not a zip archive, which every TorchScript file "
                           "is") +
                         kSaveInstead);
}

/// Refuses zip archives that hold something else than a TorchScript program.
static void checkKind(const Archive &archive, const Directory &directory) {
  auto startsWith = [&](StringRef prefix) {
    return llvm::any_of(archive.records, [&](StringRef name) {
      return name.starts_with(prefix);
    });
  };
  if (archive.hasRecord("archive_format") || startsWith("models/") ||
      startsWith("serialized_exported_program"))
    refuseFile(archive.path,
               Twine("is an exported program (torch.export), not a TorchScript "
                     "archive") +
                   kSaveInstead);
  if (directory.lookup("model.json"))
    refuseFile(archive.path,
               "is of the format before PyTorch 1.4 (model.json), which koila "
               "does not read; load it with a later PyTorch and save it again "
               "with torch.jit.save");
  if (startsWith("code/"))
    return;
  if (archive.hasRecord("data.pkl"))
    refuseFile(archive.path,
               Twine("was written by torch.save: it holds a state_dict or a "
                     "pickled module, which is data without a program") +
                   kSaveInstead);
  refuseWithoutProgram(archive.path);
}

Archive koila::torchscript::inspectArchive(const std::string &path) {
  Archive archive;
  archive.path = path;
  llvm::sys::fs::file_status status;
  if (std::error_code error = llvm::sys::fs::status(path, status))
    refuse(Twine("cannot open '") + path + "': " + error.message());
  if (llvm::sys::fs::is_directory(status))
    refuseFile(path, "is a directory, not an archive");
  if (!llvm::sys::fs::is_regular_file(status))
    refuseFile(path, "is not a regular file, and an archive is read at "
                     "random; store it in a file first");
  auto buffer = llvm::MemoryBuffer::getFile(path, /*IsText=*/false,
                                            /*RequiresNullTerminator=*/false);
  if (!buffer)
    refuse(Twine("cannot open '") + path + "': " + buffer.getError().message());
  StringRef bytes = (*buffer)->getBuffer();
  checkMagic(path, bytes);
  Directory directory = readDirectory(path, bytes);
  archive.fingerprint = directory.fingerprint;
  for (const Record &record : directory.records)
    archive.records.push_back(record.name);
  checkKind(archive, directory);
  try {
    checkContents(archive, directory, bytes);
  } catch (const std::exception &error) {
    refuseFile(path, Twine("cannot be read as a zip archive: ") +
                         getFirstLine(error));
  }
  return archive;
}

bool koila::torchscript::isUnchanged(const Archive &archive) {
  auto buffer = llvm::MemoryBuffer::getFile(archive.path, /*IsText=*/false,
                                            /*RequiresNullTerminator=*/false);
  if (!buffer)
    return false;
  try {
    return readDirectory(archive.path, (*buffer)->getBuffer()).fingerprint ==
           archive.fingerprint;
  } catch (const Refusal &) {
    return false;
  }
}

torch::jit::ExtraFilesMap
koila::torchscript::getExtraFiles(const Archive &archive) {
  torch::jit::ExtraFilesMap files;
  for (StringRef record : archive.records)
    if (record.consume_front("extra/"))
      files[record.str()] = "";
  return files;
}

/// Gives the inputs of traced methods the types of their recorded examples.
/// LibTorch's own way to restore them goes on to infer the graph's shapes, and
/// expands the operands of comparisons to the extents of the example: the
/// program would hold for its batch alone.
static void restoreInputTypes(const torch::jit::Module &module,
                              const Archive &archive) {
  namespace tj = torch::jit;
  std::shared_ptr<tj::CompilationUnit> unit =
      module._ivalue()->compilation_unit();
  auto resolve = [&](const c10::QualifiedName &name) {
    c10::TypePtr type = unit->get_type(name);
    // Not only of classes: the tags of lists and dicts are types, too.
    return c10::StrongTypePtr(
        unit,
        type ? type : tj::Unpickler::defaultTypeParser(name.qualifiedName()));
  };
  caffe2::serialize::PyTorchStreamReader reader(archive.path);
  auto examples = tj::readArchiveAndTensors(
                      "traced_inputs", /*pickle_prefix=*/"",
                      /*tensor_prefix=*/"", resolve, tj::ObjLoaderFunc,
                      c10::Device(c10::kCPU), reader)
                      .toGenericDict();
  for (const auto &entry : examples) {
    tj::Method method = module.get_method(entry.key().toStringRef());
    std::shared_ptr<tj::Graph> graph =
        tj::toGraphFunction(method.function()).graph();
    tj::Stack stack = entry.value().toList().vec();
    if (graph->inputs().size() == stack.size() + 1)
      stack.insert(stack.begin(), module._ivalue());
    tj::setInputTensorTypes(*graph, stack, /*complete=*/true);
  }
}

torch::jit::Module
koila::torchscript::loadArchive(const Archive &archive,
                                torch::jit::ExtraFilesMap &extraFiles,
                                bool restoreExamples) {
  try {
    auto unit = std::make_shared<torch::jit::CompilationUnit>();
    torch::jit::Module module = torch::jit::import_ir_module(
        unit, archive.path, c10::Device(c10::kCPU), extraFiles,
        /*load_debug_files=*/true, /*restore_shapes=*/false);
    bool isTraced = archive.hasRecord("traced_inputs.pkl");
    if (restoreExamples && isTraced)
      restoreInputTypes(module, archive);
    followDevice(module, findDevice(archive), isTraced);
    return module;
  } catch (const std::exception &error) {
    std::string what = getFirstLine(error);
    if (StringRef(what).contains("Unknown builtin op"))
      refuseFile(archive.path,
                 Twine("uses an operator that this LibTorch does not have: ") +
                     what +
                     "; load the library that registers it, or export "
                     "the model without it");
    refuseFile(archive.path, Twine("cannot be loaded: ") + what +
                                 "; save it again with this version of "
                                 "PyTorch (" TORCH_VERSION ")");
  }
}

bool Archive::carries(StringRef method) const {
  return hasRecord("extra/" + CarriedFiles(method).module);
}

koila::torchscript::CarriedFiles::CarriedFiles(StringRef method)
    : module(("koila/" + method + "/module.mlirbc").str()),
      fingerprint(("koila/" + method + "/fingerprint").str()),
      report(("koila/" + method + "/report.json").str()) {}

torch::jit::Method
koila::torchscript::getMethod(const torch::jit::Module &module,
                              const std::string &function,
                              const std::string &path) {
  if (auto method = module.find_method(function))
    return *method;
  llvm::SmallVector<std::string> names;
  for (const torch::jit::Method &method : module.get_methods())
    names.push_back(method.name());
  if (names.empty())
    refuseFile(path, "has no methods");
  refuseFile(path, Twine("has no method '") + function +
                       "'; its methods are: " + llvm::join(names, ", "));
}
