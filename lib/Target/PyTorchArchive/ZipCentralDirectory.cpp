//===- ZipCentralDirectory.cpp - The directory of a zip file --------------===//
//
// Read before LibTorch opens the file: its buffers have the sizes that the
// directory declares. The checksums also identify a file without reading
// gigabytes of weights.
//
//===----------------------------------------------------------------------===//

#include "koila/Target/PyTorchArchive/ZipCentralDirectory.h"
#include "koila/Target/PyTorchArchive/Refusal.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/Endian.h"
#include "llvm/Support/SHA256.h"
#include <algorithm>

using namespace koila::torchscript;
using llvm::StringRef;
using llvm::Twine;
namespace endian = llvm::support::endian;

/// More than any model has tensors.
static constexpr uint64_t kMaxRecords = 1 << 20;
/// Code and debug records shrink to a tenth or so. Above this floor, and this
/// many times the size of the file, it is made to fill the memory.
static constexpr uint64_t kUnpackedFloor = uint64_t(256) << 20;
static constexpr uint64_t kUnpackedFactor = 64;

const Record *Directory::lookup(StringRef name) const {
  for (const Record &record : records)
    if (StringRef(record.name).equals_insensitive(name))
      return &record;
  return nullptr;
}

namespace {
class DirectoryReader {
public:
  DirectoryReader(StringRef path, StringRef bytes) : path(path), bytes(bytes) {}

  Directory read();

private:
  [[noreturn]] void refuseTruncated() {
    refuseFile(path, "is truncated: its directory is missing or incomplete; "
                     "copy or save it again");
  }
  [[noreturn]] void refuseDamaged(const Twine &why) {
    refuseFile(path, Twine("is damaged: ") + why + "; copy or save it again");
  }
  /// Refuses zip archives that no PyTorch wrote, by the names in them.
  void refuseForeignArchive();
  void findDirectory();
  void readEntry();
  void readWideFields(StringRef extra, Record &record);
  void checkRecord(const Record &record);

  StringRef path, bytes;
  uint64_t count = 0, start = 0, offset = 0;
  /// Total size of the records when unpacked.
  uint64_t total = 0;
  /// What the first name starts with, up to the slash.
  StringRef folder;
  llvm::StringSet<> lowerNames;
  llvm::SHA256 hash;
  Directory directory;
};
} // namespace

/// Finds the end record, which is the last thing in the file but for a comment.
void DirectoryReader::findDirectory() {
  constexpr StringRef kEnd("PK\x05\x06", 4);
  size_t end = bytes.rfind(kEnd);
  if (end == StringRef::npos || end + 22 > bytes.size())
    refuseTruncated();
  count = endian::read16le(bytes.data() + end + 10);
  start = endian::read32le(bytes.data() + end + 16);
  // Archives above 4 GiB have a second end record with wide fields.
  if (end >= 20 && bytes.substr(end - 20).starts_with("PK\x06\x07")) {
    uint64_t wide = endian::read64le(bytes.data() + end - 20 + 8);
    if (wide > bytes.size() || bytes.size() - wide < 56 ||
        !bytes.substr(wide).starts_with("PK\x06\x06"))
      refuseTruncated();
    count = endian::read64le(bytes.data() + wide + 32);
    start = endian::read64le(bytes.data() + wide + 48);
  }
  if (count > kMaxRecords)
    refuseDamaged(Twine("its directory counts ") + Twine(count) + " records");
  offset = start;
}

void DirectoryReader::refuseForeignArchive() {
  StringRef names = bytes.substr(start);
  if (names.contains("MAR-INF/MANIFEST.json"))
    refuseFile(path, "is an archive of TorchServe; unpack it (unzip) and give "
                     "the model in it, which MAR-INF/MANIFEST.json names as "
                     "serializedFile");
  if (!names.contains("/data.pkl") && !names.contains("/constants.pkl"))
    refuseWithoutProgram(path);
}

/// Takes sizes and place from the field that replaces them when they do not
/// fit in 32 bits.
void DirectoryReader::readWideFields(StringRef extra, Record &record) {
  constexpr uint64_t kInWide = 0xffffffff;
  if (record.size != kInWide && record.packedSize != kInWide &&
      record.place != kInWide)
    return;
  while (extra.size() >= 4) {
    uint16_t id = endian::read16le(extra.data());
    size_t size = endian::read16le(extra.data() + 2);
    StringRef field = extra.substr(4, size);
    if (field.size() < size)
      break;
    extra = extra.drop_front(4 + size);
    if (id != 1)
      continue;
    for (uint64_t *value : {&record.size, &record.packedSize, &record.place}) {
      if (*value != kInWide)
        continue;
      if (field.size() < 8)
        refuseDamaged("sizes are missing in its directory");
      *value = endian::read64le(field.data());
      field = field.drop_front(8);
    }
    return;
  }
}

void DirectoryReader::checkRecord(const Record &record) {
  uint64_t fileSize = bytes.size(), place = record.place;
  if (place > start || start - place < 30 ||
      record.packedSize > start - place - 30 ||
      !bytes.substr(place).starts_with("PK\x03\x04"))
    refuseDamaged("record '" + record.name + "' does not lie in the file");
  if (!record.compressed && record.size != record.packedSize)
    refuseDamaged("record '" + record.name + "' has two sizes");
  uint64_t limit = std::max(kUnpackedFloor, fileSize * kUnpackedFactor);
  if (record.size > limit || (total += record.size) > limit)
    refuseFile(path, "would unpack to more than 64 times its size and 256 MiB; "
                     "save it again with torch.jit.save, which leaves weights "
                     "uncompressed");
}

void DirectoryReader::readEntry() {
  if (offset > bytes.size() || bytes.size() - offset < 46 ||
      !bytes.substr(offset).starts_with("PK\x01\x02"))
    refuseTruncated();
  const char *entry = bytes.data() + offset;
  uint64_t nameSize = endian::read16le(entry + 28);
  uint64_t extraSize = endian::read16le(entry + 30);
  uint64_t next =
      offset + 46 + nameSize + extraSize + endian::read16le(entry + 32);
  if (next > bytes.size())
    refuseTruncated();
  StringRef fullName = bytes.substr(offset + 46, nameSize);
  // The leading folder is named after the file at the time of saving; a
  // renamed copy is still the same program.
  auto [first, name] = fullName.split('/');
  if (directory.records.empty())
    folder = first;
  // LibTorch reads from the first record's folder only, and looks names up
  // without regard to case: another record could stand for the one checked.
  if (first != folder)
    refuseForeignArchive();
  if (first != folder || name.contains('\0'))
    refuseDamaged("record '" + fullName + "' is outside of its folder");
  if (!lowerNames.insert(name.lower()).second)
    refuseFile(path, "has two records '" + name +
                         "', and which of them counts is not defined; copy or "
                         "save it again");

  Record record;
  record.name = name.str();
  record.compressed = endian::read16le(entry + 10) != 0;
  record.checksum = endian::read32le(entry + 16);
  record.packedSize = endian::read32le(entry + 20);
  record.size = endian::read32le(entry + 24);
  record.place = endian::read32le(entry + 42);
  readWideFields(bytes.substr(offset + 46 + nameSize, extraSize), record);
  checkRecord(record);

  hash.update(name);
  // Checksum, compressed and uncompressed size.
  hash.update(StringRef("\0", 1));
  hash.update(StringRef(entry + 16, 12));
  directory.records.push_back(std::move(record));
  offset = next;
}

Directory DirectoryReader::read() {
  findDirectory();
  for (uint64_t i = 0; i < count; ++i)
    readEntry();
  directory.fingerprint = llvm::toHex(hash.final(), /*LowerCase=*/true);
  return std::move(directory);
}

std::optional<StringRef> koila::torchscript::getStored(const Record &record,
                                                       StringRef bytes) {
  if (record.compressed)
    return std::nullopt;
  const char *header = bytes.data() + record.place;
  uint64_t start = record.place + 30 + endian::read16le(header + 26) +
                   endian::read16le(header + 28);
  return bytes.substr(start, record.size);
}

Directory koila::torchscript::readDirectory(StringRef path, StringRef bytes) {
  return DirectoryReader(path, bytes).read();
}
