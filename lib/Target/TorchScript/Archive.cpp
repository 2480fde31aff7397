//===- Archive.cpp - TorchScript archives before they are loaded ----------===//
//
// A file is judged by its directory first: LibTorch's own messages for wrong
// files speak of its internals, and loading may run code. The directory's
// checksums also identify a file without reading gigabytes of weights.
//
//===----------------------------------------------------------------------===//

#include "Archive.h"
#include "Messages.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Endian.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/SHA256.h"
#include <caffe2/serialize/inline_container.h>
#include <torch/csrc/jit/serialization/import.h>
#include <torch/version.h>

using namespace koila::torchscript;
using llvm::StringRef;
using llvm::Twine;
namespace endian = llvm::support::endian;

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

[[noreturn]] static void refuseFile(StringRef path, const Twine &why) {
  refuse(Twine("'") + path + "' " + why);
}

static constexpr const char *kSaveInstead =
    "; make a program of the model with torch.jit.trace or torch.jit.script "
    "and save it with torch.jit.save";

/// Reads names, sizes and checksums from the central directory.
static void readDirectory(StringRef bytes, Archive &archive) {
  StringRef path = archive.path;
  if (bytes.empty())
    refuseFile(path, "is empty; copy or save it again");
  if (bytes.starts_with("\x80\x02"))
    refuseFile(path, Twine("is a pickle of the format before PyTorch 1.6, not "
                           "a TorchScript archive") +
                         kSaveInstead);
  if (!bytes.starts_with("PK\x03\x04"))
    refuseFile(path, Twine("is not a zip archive, which every TorchScript file "
                           "is") +
                         kSaveInstead);
  // The end record is the last thing in the file but for a comment.
  constexpr StringRef kEnd("PK\x05\x06", 4);
  size_t end = bytes.rfind(kEnd);
  constexpr const char *kTruncated =
      "is truncated: its directory is missing or incomplete; copy or save it "
      "again";
  if (end == StringRef::npos || end + 22 > bytes.size())
    refuseFile(path, kTruncated);
  uint64_t count = endian::read16le(bytes.data() + end + 10);
  uint64_t offset = endian::read32le(bytes.data() + end + 16);
  // Archives above 4 GiB have a second end record with wide fields.
  if (end >= 20 && bytes.substr(end - 20).starts_with("PK\x06\x07")) {
    uint64_t wide = endian::read64le(bytes.data() + end - 20 + 8);
    if (wide > bytes.size() || bytes.size() - wide < 56 ||
        !bytes.substr(wide).starts_with("PK\x06\x06"))
      refuseFile(path, kTruncated);
    count = endian::read64le(bytes.data() + wide + 32);
    offset = endian::read64le(bytes.data() + wide + 48);
  }

  llvm::SHA256 hash;
  for (uint64_t i = 0; i < count; ++i) {
    if (offset > bytes.size() || bytes.size() - offset < 46 ||
        !bytes.substr(offset).starts_with("PK\x01\x02"))
      refuseFile(path, kTruncated);
    const char *entry = bytes.data() + offset;
    uint64_t nameSize = endian::read16le(entry + 28);
    uint64_t next = offset + 46 + nameSize + endian::read16le(entry + 30) +
                    endian::read16le(entry + 32);
    if (next > bytes.size())
      refuseFile(path, kTruncated);
    StringRef name = bytes.substr(offset + 46, nameSize);
    // The leading folder is named after the file at the time of saving; a
    // renamed copy is still the same program.
    name = name.split('/').second;
    archive.records.push_back(name.str());
    hash.update(name);
    // Checksum, compressed and uncompressed size.
    hash.update(StringRef("\0", 1));
    hash.update(StringRef(entry + 16, 12));
    offset = next;
  }
  archive.fingerprint = llvm::toHex(hash.final(), /*LowerCase=*/true);
}

/// Refuses zip archives that hold something else than a TorchScript program.
static void checkKind(const Archive &archive) {
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
  if (startsWith("code/"))
    return;
  if (archive.hasRecord("data.pkl"))
    refuseFile(archive.path,
               Twine("was written by torch.save: it holds a state_dict or a "
                     "pickled module, which is data without a program") +
                   kSaveInstead);
  refuseFile(archive.path, Twine("is a zip archive without a TorchScript "
                                 "program") +
                               kSaveInstead);
}

/// The device that a pickle's storages lie on, if it is a GPU. The record of
/// a storage ends in: location string, number of elements, TUPLE, BINPERSID.
static std::string findGpuStorage(StringRef pickle) {
  size_t position = 0;
  while ((position = pickle.find("cuda", position)) != StringRef::npos) {
    size_t start = position;
    position += 4;
    if (start < 5 || pickle[start - 5] != 'X')
      continue;
    uint32_t size = endian::read32le(pickle.data() + start - 4);
    StringRef rest = pickle.substr(start);
    if (size > rest.size())
      continue;
    StringRef device = rest.take_front(size);
    rest = rest.drop_front(size);
    // The string may be remembered, by a short or a long index.
    if (rest.starts_with("q"))
      rest = rest.drop_front(2);
    else if (rest.starts_with("r"))
      rest = rest.drop_front(5);
    if (rest.starts_with("K"))
      rest = rest.drop_front(2);
    else if (rest.starts_with("M"))
      rest = rest.drop_front(3);
    else if (rest.starts_with("J"))
      rest = rest.drop_front(5);
    else if (rest.starts_with("\x8a") && rest.size() > 1)
      rest = rest.drop_front(2 + static_cast<uint8_t>(rest[1]));
    else
      continue;
    if (rest.starts_with("tQ"))
      return device.str();
  }
  return {};
}

/// Refuses what only the contents of small records show.
static void checkContents(const Archive &archive) {
  caffe2::serialize::PyTorchStreamReader reader(archive.path);
  auto read = [&](const std::string &name) {
    auto [data, size] = reader.getRecord(name);
    return std::string(static_cast<const char *>(data.get()), size);
  };
  for (const std::string &name : archive.records) {
    if (name == "data.pkl" || name == "constants.pkl") {
      std::string device = findGpuStorage(read(name));
      if (!device.empty())
        refuseFile(archive.path,
                   Twine("holds tensors on ") + device +
                       ", and memory is computed for the CPU program; save it "
                       "again on the CPU: torch.jit.save(m.cpu(), ...)");
    } else if (StringRef(name).starts_with("code/") &&
               StringRef(name).ends_with(".py")) {
      if (StringRef(read(name)).contains("def __setstate__("))
        refuseFile(archive.path,
                   Twine("runs code at load: ") + name +
                       " has a __setstate__ method; save the model without "
                       "custom serialisation (no __getstate__/__setstate__)");
    }
  }
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
  readDirectory((*buffer)->getBuffer(), archive);
  checkKind(archive);
  try {
    checkContents(archive);
  } catch (const std::exception &error) {
    refuseFile(path, Twine("cannot be read as a zip archive: ") +
                         getFirstLine(error));
  }
  return archive;
}

torch::jit::Module
koila::torchscript::loadArchive(const Archive &archive,
                                torch::jit::ExtraFilesMap &extraFiles,
                                bool restoreExamples) {
  try {
    auto unit = std::make_shared<torch::jit::CompilationUnit>();
    // LibTorch warns when it is asked for examples that are not there.
    return torch::jit::import_ir_module(
        unit, archive.path, c10::Device(c10::kCPU), extraFiles,
        /*load_debug_files=*/true,
        restoreExamples && archive.hasRecord("traced_inputs.pkl"));
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
