//===- DeviceProfile.cpp - What only a device can tell --------------------===//

#include "koila/KernelModels/DeviceProfile.h"
#include "koila/Interfaces/Rules.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSwitch.h"
#include "llvm/Support/JSON.h"
#include <vector>

using namespace koila;

int64_t DeviceProfile::read(WorkspaceRule &rule, llvm::StringRef key) const {
  auto found = rows.find(key);
  if (found == rows.end()) {
    rule.setInexact("the profile of '" + device + "' has no row '" + key +
                    "', which has to be measured there");
    return 0;
  }
  const Row &row = found->second;
  rule.addDoubt(row.trust, "'" + key + "' of the profile of '" + device + "'",
                row.source);
  return row.bytes;
}

static llvm::Error problem(const llvm::Twine &text) {
  return llvm::createStringError("a device profile: " + text);
}

/// Each is an object with a `value` and its `source`.
static llvm::Error parseProperties(const llvm::json::Object &object,
                                   DeviceProperties &properties) {
  for (const auto &[key, entry] : object) {
    llvm::StringRef name = key;
    const llvm::json::Object *property = entry.getAsObject();
    if (!property || !property->getString("source"))
      return problem("property '" + name + "' needs 'value' and 'source'");
    if (name == "capability") {
      const llvm::json::Array *pair = property->getArray("value");
      auto major =
          pair && pair->size() == 2 ? (*pair)[0].getAsInteger() : std::nullopt;
      auto minor = major ? (*pair)[1].getAsInteger() : std::nullopt;
      if (!minor)
        return problem("property 'capability' is a list of two numbers");
      properties.major = major;
      properties.minor = minor;
      continue;
    }
    auto *place = llvm::StringSwitch<std::optional<int64_t> *>(name)
                      .Case("multiprocessors", &properties.multiprocessors)
                      .Case("threads_per_multiprocessor",
                            &properties.threadsPerMultiprocessor)
                      .Case("total_bytes", &properties.totalBytes)
                      .Case("context_bytes", &properties.contextBytes)
                      .Default(nullptr);
    if (!place)
      return problem("property '" + name + "' is unknown");
    *place = property->getInteger("value");
    if (!*place || **place <= 0)
      return problem("property '" + name + "' is a number above zero");
  }
  return llvm::Error::success();
}

llvm::ArrayRef<DeviceProfile> DeviceProfile::getShipped() {
  static const std::vector<DeviceProfile> shipped = [] {
    constexpr llvm::StringLiteral texts[] = {
#include "Profiles.inc"
    };
    std::vector<DeviceProfile> profiles;
    for (llvm::StringRef text : texts)
      profiles.push_back(llvm::cantFail(parse(text)));
    return profiles;
  }();
  return shipped;
}

/// `NVIDIA GeForce RTX 3060` is rtx-3060 (docs/reference/DeviceProfiles.md).
static std::string normalize(llvm::StringRef name) {
  llvm::SmallVector<llvm::StringRef> words;
  std::string lower = name.lower();
  llvm::SplitString(lower, words);
  llvm::erase_if(words, [](llvm::StringRef word) {
    return word == "nvidia" || word == "geforce";
  });
  return llvm::join(words, "-");
}

llvm::StringRef DeviceProfile::find(llvm::StringRef name, int64_t major,
                                    int64_t minor, int64_t multiprocessors) {
  std::string device = normalize(name);
  for (const DeviceProfile &profile : getShipped()) {
    const DeviceProperties &said = profile.getProperties();
    if (profile.getDevice() == device && said.major == major &&
        said.minor == minor && said.multiprocessors == multiprocessors)
      return profile.getDevice();
  }
  return "cuda";
}

llvm::Expected<DeviceProfile> DeviceProfile::parse(llvm::StringRef json) {
  llvm::Expected<llvm::json::Value> value = llvm::json::parse(json);
  if (!value)
    return value.takeError();
  const llvm::json::Object *object = value->getAsObject();
  auto device = object ? object->getString("device") : std::nullopt;
  const llvm::json::Array *rows = object ? object->getArray("rows") : nullptr;
  if (!device || !rows)
    return problem("an object with 'device' and 'rows' is expected");
  // Profiles without the member are of this version.
  if (auto schema = object->getInteger("schema"); schema.value_or(1) != 1)
    return problem("schema " + llvm::Twine(*schema) +
                   " is not known; this version reads schema 1");
  DeviceProfile profile(*device);
  if (const llvm::json::Object *properties = object->getObject("properties"))
    if (llvm::Error error = parseProperties(*properties, profile.properties))
      return error;
  for (auto [index, entry] : llvm::enumerate(*rows)) {
    const llvm::json::Object *row = entry.getAsObject();
    auto key = row ? row->getString("key") : std::nullopt;
    auto bytes = row ? row->getInteger("bytes") : std::nullopt;
    auto source = row ? row->getString("source") : std::nullopt;
    auto name = row ? row->getString("trust") : std::nullopt;
    auto trust = llvm::StringSwitch<std::optional<Trust>>(name.value_or(""))
                     .Case("exact", Trust::Exact)
                     .Case("bound", Trust::UpperBound)
                     .Case("unknown", Trust::Unknown)
                     .Default(std::nullopt);
    if (!key || !bytes || *bytes < 0 || !source || !trust)
      return problem("row " + llvm::Twine(index) +
                     " needs 'key', 'bytes' of zero or more, 'source', and "
                     "'trust', which is exact, bound or unknown");
    if (profile.rows.contains(*key))
      return problem("row " + llvm::Twine(index) + " has the key '" + *key +
                     "' once more");
    profile.add(*key, {*bytes, *trust, source->str()});
  }
  return profile;
}
