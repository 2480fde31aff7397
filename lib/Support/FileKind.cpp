//===- FileKind.cpp - What a file is that koila does not read -------------===//

#include "koila/Support/FileKind.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/Twine.h"
#include "llvm/Support/Endian.h"

using llvm::StringRef;

static constexpr const char *kUseModel =
    "load it into the model that it is of, make a program of that with "
    "torch.jit.trace or torch.jit.script, and save it with torch.jit.save";
static constexpr const char *kUsePyTorch =
    "make a program of the PyTorch model with torch.jit.trace or "
    "torch.jit.script and save it with torch.jit.save";
static constexpr const char *kUnpack = "unpack it first";

namespace {
struct Kind {
  StringRef magic, what;
  const char *wayOut;
};
} // namespace

/// The first that fits counts.
static constexpr Kind kKinds[] = {
    {StringRef("\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19", 14),
     "a pickle of torch.save as before PyTorch 1.6: it holds a state_dict or a "
     "pickled module, which is data without a program",
     kUseModel},
    {"\x80\x02", "a pickle, which is data without a program", kUseModel},
    {"\x80\x03", "a pickle, which is data without a program", kUseModel},
    {"\x80\x04", "a pickle, which is data without a program", kUseModel},
    {"\x80\x05", "a pickle, which is data without a program", kUseModel},
    {"version https://git-lfs.github.com/",
     "a pointer of git-lfs, not the file itself", "fetch that: git lfs pull"},
    {"\x93NUMPY", "an array of NumPy, which is data without a program",
     kUseModel},
    {"\x89HDF\r\n\x1a\n", "an HDF5 file, as Keras writes, and not of PyTorch",
     kUsePyTorch},
    {"GGUF", "a GGUF file, which holds weights without a program", kUseModel},
    {"\x1f\x8b", "compressed by gzip", kUnpack},
    {"\x28\xb5\x2f\xfd", "compressed by zstd", kUnpack},
    {"\xfd"
     "7zXZ",
     "compressed by xz", kUnpack},
    {"BZh", "compressed by bzip2", kUnpack},
    {"7z\xbc\xaf", "a 7z archive", kUnpack},
    {"{\"", "a JSON text, as a server sends for an error",
     "download the file again"},
};

/// A header of JSON behind its length.
static bool isSafetensors(StringRef bytes) {
  if (bytes.size() < 10 || bytes[8] != '{')
    return false;
  uint64_t size = llvm::support::endian::read64le(bytes.data());
  return size >= 2 && size <= bytes.size() - 8 &&
         bytes.substr(8, size).rtrim(' ').ends_with("}");
}

/// A protocol buffer whose first field is the small number `ir_version` and
/// whose second is a text or message of the model.
static bool isOnnx(StringRef bytes) {
  constexpr StringRef kNextFields("\x12\x1a\x22\x32\x3a\x42");
  return bytes.size() > 3 && bytes[0] == 8 && bytes[1] > 0 && bytes[1] < 32 &&
         kNextFields.contains(bytes[2]);
}

static bool isHtml(StringRef bytes) {
  StringRef text = bytes.take_front(256).ltrim();
  return text.starts_with_insensitive("<!doctype html") ||
         text.starts_with_insensitive("<html");
}

std::optional<std::string> koila::describeForeignFile(StringRef bytes) {
  auto say = [](StringRef what, StringRef wayOut) {
    return ("is " + what + "; " + wayOut).str();
  };
  for (const Kind &kind : kKinds)
    if (bytes.starts_with(kind.magic))
      return say(kind.what, kind.wayOut);
  if (isHtml(bytes))
    return say("an HTML page, as a server sends when the file needs a login or "
               "another address",
               "download the file itself");
  if (isSafetensors(bytes))
    return say("a safetensors file: it holds weights without a program",
               kUseModel);
  if (isOnnx(bytes))
    return say("an ONNX model, and koila reads TorchScript", kUsePyTorch);
  if (bytes.size() > 262 && bytes.substr(257).starts_with("ustar"))
    return say("a tar archive", kUnpack);
  return std::nullopt;
}
