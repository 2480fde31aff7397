//===- ReadBack.cpp - Reading back what was written -----------------------===//
//
// LibTorch writes programs as Python text, which it parses again at load:
// overloads are resolved anew, and expressions may move. So every archive is
// read back and compared before it takes the place of an earlier file.
//
//===----------------------------------------------------------------------===//

#include "ReadBack.h"
#include "../Boundary/DiagnosticJSON.h"
#include "Emit.h"
#include "koila/Analysis/PeakMemory.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/SHA256.h"

using namespace mlir;
using namespace koila;
using namespace koila::torchscript;
namespace tj = torch::jit;
using llvm::Twine;

std::string koila::torchscript::getCanonicalText(ModuleOp module) {
  OwningOpRef<ModuleOp> copy = module.clone();
  (*copy)->removeAttr(KoilaDialect::kArchiveAttr);
  for (auto function : copy->getOps<func::FuncOp>()) {
    function.setName("function");
    // A step has it as it is made, and not as it is read.
    function->removeAttr(kLifetimesAttr);
    for (unsigned i = 0; i < function.getNumArguments(); ++i)
      function.removeArgAttr(i, kExampleAttr);
  }
  std::string text;
  llvm::raw_string_ostream os(text);
  copy->print(os);
  return text;
}

namespace {
/// Compares two bodies in lockstep.
class SameProgram {
public:
  bool compare(Block &lhs, Block &rhs) {
    if (lhs.getNumArguments() != rhs.getNumArguments())
      return false;
    for (auto [left, right] :
         llvm::zip_equal(lhs.getArguments(), rhs.getArguments()))
      partners[left] = right;
    auto left = lhs.begin(), right = rhs.begin();
    while (true) {
      skip(left, lhs);
      skip(right, rhs);
      if (left == lhs.end() || right == rhs.end())
        return left == lhs.end() && right == rhs.end();
      if (!compare(*left++, *right++))
        return false;
    }
  }

private:
  /// Refinements, assumptions and ends of lives do nothing.
  void skip(Block::iterator &it, Block &block) {
    while (it != block.end() && isa<RefineOp, AssumeOp, KeepAliveOp>(*it))
      ++it;
  }
  static Value getSource(Value value) {
    while (auto refine = value.getDefiningOp<RefineOp>())
      value = refine.getSource();
    return value;
  }
  bool compare(Operation &lhs, Operation &rhs) {
    if (lhs.getName() != rhs.getName() ||
        lhs.getAttrDictionary() != rhs.getAttrDictionary() ||
        lhs.getNumOperands() != rhs.getNumOperands() ||
        lhs.getNumResults() != rhs.getNumResults() ||
        lhs.getNumRegions() != rhs.getNumRegions())
      return false;
    for (auto [left, right] :
         llvm::zip_equal(lhs.getOperands(), rhs.getOperands()))
      if (partners.lookup(getSource(left)) != getSource(right))
        return false;
    for (auto [left, right] :
         llvm::zip_equal(lhs.getResults(), rhs.getResults()))
      partners[left] = right;
    for (auto [left, right] :
         llvm::zip_equal(lhs.getRegions(), rhs.getRegions())) {
      if (left.empty() || right.empty()) {
        if (left.empty() != right.empty())
          return false;
      } else if (!compare(left.front(), right.front())) {
        return false;
      }
    }
    return true;
  }

  llvm::DenseMap<Value, Value> partners;
};
} // namespace

bool koila::torchscript::isSameProgram(func::FuncOp lhs, func::FuncOp rhs) {
  return SameProgram().compare(lhs.getBody().front(), rhs.getBody().front());
}

std::string
koila::torchscript::getMethodNormalForm(const tj::Module &module,
                                        const std::string &function) {
  auto graph = tj::toGraphFunction(module.get_method(function).function())
                   .graph()
                   ->copy();
  cleanUpGraph(graph);
  return getNormalForm(*graph);
}

std::string
koila::torchscript::getFunctionFingerprint(const tj::Module &module,
                                           const std::string &function,
                                           const NormalForms &known) {
  auto get = [&](const std::string &method) {
    auto found = llvm::find_if(
        known, [&](const auto &entry) { return entry.first == method; });
    return found != known.end() ? found->second
                                : getMethodNormalForm(module, method);
  };
  std::string form = get(function);
  // A guard says nothing of what it protects.
  for (const std::string &guarded : GuardedMethods(function).listGuarded())
    if (module.find_method(guarded))
      form += get(guarded);
  return llvm::toHex(
      llvm::SHA256::hash(llvm::ArrayRef<uint8_t>(
          reinterpret_cast<const uint8_t *>(form.data()), form.size())),
      /*LowerCase=*/true);
}

/// The first line that differs, of both texts.
static std::string getDifference(llvm::StringRef expected,
                                 llvm::StringRef actual) {
  while (!expected.empty() || !actual.empty()) {
    auto [ours, ourRest] = expected.split('\n');
    auto [theirs, theirRest] = actual.split('\n');
    if (ours != theirs)
      return ("'" + ours.trim() + "' came back as '" + theirs.trim() + "'")
          .str();
    expected = ourRest;
    actual = theirRest;
  }
  return "no line differs";
}

void koila::torchscript::verifyArchive(const std::string &path,
                                       const Expectation &expectation,
                                       const OperatorTable &operators,
                                       MLIRContext *context) {
  constexpr const char *kChanged =
      "the written program reads back as another one; nothing was stored: ";
  Archive archive = inspectArchive(path);
  tj::ExtraFilesMap extraFiles;
  tj::Module module =
      loadArchive(archive, extraFiles, /*restoreExamples=*/false);
  for (const auto &[function, expected] : expectation.normalForms) {
    getMethod(module, function, path);
    std::string actual = getMethodNormalForm(module, function);
    if (actual != expected)
      refuse(Twine(kChanged) + "in '" + function + "', " +
             getDifference(expected, actual));
  }
  if (expectation.sameFunction.empty())
    return;
  ImportedFunction imported = importFunction(
      archive, module, expectation.sameFunction, operators, context);
  std::string actual = getCanonicalText(*imported.module);
  if (actual != expectation.canonicalText)
    refuse(Twine(kChanged) + "in '" + expectation.sameFunction + "', " +
           getDifference(expectation.canonicalText, actual));
}
