//===- RequestSource.h - Questions in JSON to who can answer ----*- C++ -*-===//
//
// What koila's core cannot know by itself, the shapes that a kernel of LibTorch
// gives or the rules that a program wrote, it asks in JSON: the answer may come
// from another library, or from Python.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_INTERFACES_REQUESTSOURCE_H
#define KOILA_INTERFACES_REQUESTSOURCE_H

#include "mlir/IR/Attributes.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/Support/JSON.h"
#include <mutex>
#include <optional>
#include <string>

namespace koila {

/// Who answers. Each request is answered once: a program has the same ones in
/// all of its layers, and analyses ask again for every tile.
class RequestSource {
public:
  virtual ~RequestSource();
  /// None if there is no answer.
  std::optional<std::string> run(llvm::StringRef request) const;
  /// The same, parsed; none also for an answer that is no JSON.
  std::optional<llvm::json::Value> ask(llvm::json::Object question) const;

protected:
  virtual std::optional<std::string> answer(llvm::StringRef request) const = 0;

private:
  mutable llvm::StringMap<std::optional<std::string>> answers;
  mutable std::mutex mutex;
};

/// `{"value": literal}`, `{"float": number}` with "inf", "-inf" or "nan" for
/// what JSON has not, `{"device": name}`, or `{"list": [...]}` of such; none if
/// `literal` is no literal of a program.
std::optional<llvm::json::Value> encodeLiteral(mlir::Attribute literal);

} // namespace koila

#endif // KOILA_INTERFACES_REQUESTSOURCE_H
