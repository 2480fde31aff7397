//===- CustomOperators.cpp - Operators that a program registered ----------===//

#include "CustomOperators.h"
#include "koila/Dialect/Koila/IR/Koila.h"
#include "koila/Target/TorchScript/InProcess.h"
#include "mlir/IR/DialectRegistry.h"
#include <memory>

using namespace mlir;
using namespace koila;

namespace {
struct Registered {
  llvm::StringMap<CustomOperator> operators;
  std::function<std::string(llvm::StringRef)> answer;
};

/// Contexts go on with what there was when they were made.
std::shared_ptr<const Registered> &getRegistered() {
  static std::shared_ptr<const Registered> current;
  return current;
}

class Source : public CustomOperatorSource {
public:
  explicit Source(Dialect *dialect)
      : CustomOperatorSource(dialect), registered(getRegistered()) {}
  const CustomOperator *lookup(llvm::StringRef callee) const override {
    auto found = registered->operators.find(callee);
    return found == registered->operators.end() ? nullptr : &found->getValue();
  }
  std::optional<std::string> answer(llvm::StringRef request) const override {
    return registered->answer(request);
  }

private:
  std::shared_ptr<const Registered> registered;
};

struct Extension : DialectExtension<Extension, KoilaDialect> {
  void apply(MLIRContext *, KoilaDialect *dialect) const override {
    if (getRegistered())
      dialect->addInterface<Source>();
  }
};
} // namespace

void torchscript::setCustomOperators(
    llvm::StringMap<CustomOperator> operators,
    std::function<std::string(llvm::StringRef)> answer) {
  getRegistered() = std::make_shared<const Registered>(
      Registered{std::move(operators), std::move(answer)});
}

void torchscript::addCustomOperators(DialectRegistry &registry) {
  registry.addExtensions<Extension>();
}
