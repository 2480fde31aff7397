//===- RequestSource.cpp - Questions in JSON to who can answer ------------===//

#include "koila/Interfaces/RequestSource.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "llvm/Support/raw_ostream.h"
#include <cmath>

using namespace mlir;
using namespace koila;
namespace json = llvm::json;

RequestSource::~RequestSource() = default;

std::optional<std::string> RequestSource::run(StringRef request) const {
  std::lock_guard<std::mutex> lock(mutex);
  auto [entry, isNew] = answers.try_emplace(request);
  if (isNew)
    entry->second = answer(request);
  return entry->second;
}

std::optional<json::Value> RequestSource::ask(json::Object question) const {
  std::string request;
  llvm::raw_string_ostream(request) << json::Value(std::move(question));
  std::optional<std::string> text = run(request);
  if (!text)
    return std::nullopt;
  auto parsed = json::parse(*text);
  if (!parsed) {
    llvm::consumeError(parsed.takeError());
    return std::nullopt;
  }
  return std::move(*parsed);
}

std::optional<json::Value> koila::encodeLiteral(Attribute literal) {
  auto value = [](json::Value made) {
    return json::Object{{"value", std::move(made)}};
  };
  if (isa<UnitAttr>(literal))
    return value(nullptr);
  if (auto flag = dyn_cast<BoolAttr>(literal))
    return value(flag.getValue());
  if (auto integer = dyn_cast<IntegerAttr>(literal))
    return value(integer.getInt());
  if (auto number = dyn_cast<FloatAttr>(literal)) {
    double finite = number.getValueAsDouble();
    if (std::isfinite(finite))
      return json::Object{{"float", finite}};
    return json::Object{{"float", std::isnan(finite) ? "nan"
                                  : finite > 0       ? "inf"
                                                     : "-inf"}};
  }
  if (auto text = dyn_cast<StringAttr>(literal))
    return value(text.getValue());
  if (auto dictionary = dyn_cast<DictionaryAttr>(literal))
    if (auto device = dictionary.getAs<StringAttr>("device"))
      return json::Object{{"device", device.getValue()}};
  auto array = dyn_cast<ArrayAttr>(literal);
  if (!array)
    return std::nullopt;
  json::Array list;
  for (Attribute element : array) {
    auto encoded = encodeLiteral(element);
    if (!encoded)
      return std::nullopt;
    list.push_back(std::move(*encoded));
  }
  return json::Object{{"list", std::move(list)}};
}
