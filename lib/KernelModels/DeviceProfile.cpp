//===- DeviceProfile.cpp - What only a device can tell --------------------===//

#include "koila/KernelModels/DeviceProfile.h"
#include "koila/Interfaces/Rules.h"
#include "llvm/ADT/StringSwitch.h"
#include "llvm/Support/JSON.h"

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

llvm::Expected<DeviceProfile> DeviceProfile::parse(llvm::StringRef json) {
  auto problem = [](const llvm::Twine &text) {
    return llvm::createStringError("a device profile: " + text);
  };
  llvm::Expected<llvm::json::Value> value = llvm::json::parse(json);
  if (!value)
    return value.takeError();
  const llvm::json::Object *object = value->getAsObject();
  auto device = object ? object->getString("device") : std::nullopt;
  const llvm::json::Array *rows = object ? object->getArray("rows") : nullptr;
  if (!device || !rows)
    return problem("an object with 'device' and 'rows' is expected");
  DeviceProfile profile(*device);
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
