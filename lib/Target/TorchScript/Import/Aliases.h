//===- Aliases.h - Which values may share a storage -------------*- C++ -*-===//

#ifndef KOILA_TARGET_TORCHSCRIPT_IMPORT_ALIASES_H
#define KOILA_TARGET_TORCHSCRIPT_IMPORT_ALIASES_H

#include <string>
#include <torch/csrc/jit/ir/ir.h>
#include <unordered_map>
#include <vector>

namespace koila::torchscript {

/// Alias classes of the values met so far, in program order. Conservative: two
/// values in different classes share no storage.
class AliasClasses {
public:
  using Value = torch::jit::Value;

  /// Says that `value` lives in storage that the function did not allocate;
  /// `owner` is what to call it, for example "argument 'x'".
  void setForeign(const Value *value, const std::string &owner);
  /// Says the same of a tensor that is known: one of the module, or a constant.
  void setKnown(const Value *value, const std::string &owner,
                const at::Tensor &tensor);
  void unite(const Value *lhs, const Value *rhs);
  /// The whole tensor `result` is the tensor `written`.
  void identify(const Value *result, const Value *written);
  /// Says that the operator made `value` in storage of its own, where each
  /// element has a place to itself.
  void setNew(const Value *value) { lookup(value).isNew = true; }
  /// Unites both, of which `view` has no element that `base` does not have.
  void setView(const Value *view, const Value *base);

  /// Unites the outputs of `node` with the inputs they may share storage with:
  /// those the schema says, and all of them for containers, wildcards, and
  /// operators whose implementation is made of others, since such schemas say
  /// less than the truth (`einsum` may return a view). `trustSchema` turns the
  /// last off for operators whose aliasing is known otherwise.
  void visit(const torch::jit::Node *node, bool trustSchema);

  bool inSameClass(const Value *lhs, const Value *rhs) {
    return find(lhs) == find(rhs);
  }
  /// Empty if `value` was allocated in the function, else its owner.
  std::string getOwner(const Value *value);
  /// The values of the class.
  const std::vector<const Value *> &getMembers(const Value *value) {
    return lookup(find(value)).members;
  }
  /// Unites with each of `written` what may share its storage of all that the
  /// function did not allocate: arguments may be the same tensor, or one of the
  /// module. Known tensors share what they share now.
  void uniteForeign(const std::vector<const Value *> &written);
  /// A use of another value of the class than the tensor `value` itself, after
  /// `node`; null if there is none.
  /// Parts of one tensor that share no element with `value` do not count.
  const torch::jit::Node *findLaterUse(const Value *value,
                                       torch::jit::Node *node);
  /// The values that are the whole tensor `value`.
  std::vector<const Value *> getIdentical(const Value *value);

private:
  struct Entry {
    const Value *parent = nullptr;
    /// For representatives.
    std::vector<const Value *> members;
    std::string owner;
    /// Values with the same number are the same tensor.
    unsigned identity = 0;
    bool isNew = false;
    /// Has all elements of the value; null if that is not known.
    const Value *base = nullptr;
  };
  Entry &lookup(const Value *value);
  const Value *find(const Value *value);
  bool hasApartElements(const Value *value);
  bool areApart(const Value *lhs, const Value *rhs);

  std::unordered_map<const Value *, Entry> entries;
  /// Of unknown storage, and of known ones.
  std::vector<const Value *> foreign, known;
  std::unordered_map<const c10::StorageImpl *, const Value *> storages;
};

} // namespace koila::torchscript

#endif // KOILA_TARGET_TORCHSCRIPT_IMPORT_ALIASES_H
