//===- Aliases.cpp - Which values may share a storage ---------------------===//

#include "Aliases.h"
#include "ListViews.h"
#include "koila/Target/TorchScript/Types.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/StringSet.h"
#include <ATen/core/dispatch/Dispatcher.h>
#include <unordered_set>

using namespace koila::torchscript;
namespace tj = torch::jit;

AliasClasses::Entry &AliasClasses::lookup(const Value *value) {
  auto [it, inserted] = entries.try_emplace(value);
  if (inserted) {
    it->second.parent = value;
    it->second.members.push_back(value);
    it->second.identity = entries.size();
  }
  return it->second;
}

const AliasClasses::Value *AliasClasses::find(const Value *value) {
  const Value *parent = lookup(value).parent;
  while (parent != value) {
    value = parent;
    parent = lookup(value).parent;
  }
  return value;
}

void AliasClasses::setForeign(const Value *value, const std::string &owner) {
  lookup(find(value)).owner = owner;
  foreign.push_back(value);
}

void AliasClasses::setKnown(const Value *value, const std::string &owner,
                            const at::Tensor &tensor) {
  if (!tensor.defined() || !tensor.has_storage())
    return setForeign(value, owner);
  lookup(find(value)).owner = owner;
  known.push_back(value);
  auto [other, isNew] =
      storages.try_emplace(tensor.storage().unsafeGetStorageImpl(), value);
  if (!isNew)
    unite(other->second, value);
}

void AliasClasses::uniteForeign(const std::vector<const Value *> &written) {
  std::unordered_set<const Value *> classes;
  for (const Value *value : written)
    if (!getOwner(value).empty())
      classes.insert(find(value));
  if (classes.empty())
    return;
  bool isUnknown =
      std::any_of(foreign.begin(), foreign.end(), [&](const Value *value) {
        return classes.count(find(value)) != 0;
      });
  const Value *first = *classes.begin();
  for (const Value *value : foreign)
    unite(first, value);
  for (const Value *value : classes)
    unite(first, value);
  if (isUnknown)
    for (const Value *value : known)
      unite(first, value);
}

void AliasClasses::unite(const Value *lhs, const Value *rhs) {
  lhs = find(lhs);
  rhs = find(rhs);
  if (lhs == rhs)
    return;
  // References into the map stay valid when it grows.
  Entry &into = lookup(lhs), &from = lookup(rhs);
  if (into.members.size() < from.members.size()) {
    unite(rhs, lhs);
    return;
  }
  into.members.insert(into.members.end(), from.members.begin(),
                      from.members.end());
  from.members.clear();
  if (into.owner.empty())
    into.owner = from.owner;
  from.parent = lhs;
}

void AliasClasses::identify(const Value *result, const Value *written) {
  unite(result, written);
  lookup(result).identity = lookup(written).identity;
  lookup(result).base = written;
}

void AliasClasses::setView(const Value *view, const Value *base) {
  unite(view, base);
  lookup(view).base = base;
}

//===----------------------------------------------------------------------===//
// Parts of one tensor
//===----------------------------------------------------------------------===//

/// Whether the operator makes a list of parts of a tensor.
static bool isSplit(const tj::Node *node) {
  static const llvm::StringSet<> splits = {"aten::chunk",
                                           "aten::split",
                                           "aten::split_with_sizes",
                                           "aten::tensor_split",
                                           "aten::unbind",
                                           "aten::unsafe_chunk",
                                           "aten::unsafe_split",
                                           "aten::unsafe_split_with_sizes"};
  return splits.contains(node->kind().toQualString());
}

/// Whether the node takes such a list apart. Nobody else has the list, so that
/// nobody changes it.
static bool unpacksParts(const tj::Node *node) {
  return node->kind() == c10::prim::ListUnpack &&
         node->input()->uses().size() == 1 && isSplit(node->input()->node());
}

/// Whether the operator is a view in which each element of the tensor is once
/// at most, unlike one that expands it.
static bool showsElementsOnce(const tj::Node *node) {
  static const llvm::StringSet<> views = {
      "aten::contiguous", "aten::detach",  "aten::flatten",   "aten::narrow",
      "aten::permute",    "aten::reshape", "aten::select",    "aten::slice",
      "aten::squeeze",    "aten::t",       "aten::transpose", "aten::unflatten",
      "aten::unsqueeze",  "aten::view"};
  return views.contains(node->kind().toQualString()) || isSplit(node) ||
         unpacksParts(node);
}

/// Whether no two elements of the tensor have the same place.
bool AliasClasses::hasApartElements(const Value *value) {
  while (!lookup(value).isNew) {
    const Entry &entry = lookup(value);
    if (!entry.base || (entry.identity != lookup(entry.base).identity &&
                        !showsElementsOnce(value->node())))
      return false;
    value = entry.base;
  }
  return true;
}

/// Whether both are of two parts into which one tensor was split.
bool AliasClasses::areApart(const Value *lhs, const Value *rhs) {
  llvm::SmallDenseMap<const tj::Node *, size_t> parts;
  for (; lhs; lhs = lookup(lhs).base)
    if (unpacksParts(lhs->node()))
      parts[lhs->node()] = lhs->offset();
  for (; rhs; rhs = lookup(rhs).base) {
    auto other = parts.find(rhs->node());
    if (other != parts.end() && other->second != rhs->offset())
      return hasApartElements(lookup(rhs).base);
  }
  return false;
}

/// Whether the operator is implemented by calls of other operators, so that it
/// may return one of their views without saying so.
static bool isComposite(const c10::FunctionSchema &schema) {
  auto handle = c10::Dispatcher::singleton().findSchema(
      {schema.name(), schema.overload_name()});
  return handle && handle->hasKernelForDispatchKey(
                       c10::DispatchKey::CompositeImplicitAutograd);
}

bool koila::torchscript::sharesSilently(const tj::Node &node) {
  static const llvm::StringSet<> silent = {
      "aten::broadcast_tensors", "aten::meshgrid", "aten::unsafe_chunk",
      "aten::unsafe_split", "aten::unsafe_split_with_sizes"};
  return silent.contains(node.kind().toQualString());
}

/// The alias sets an annotation names, those of list elements included. True
/// if one is the wildcard, which may be anything.
static bool collectSets(const c10::AliasInfo *alias,
                        std::unordered_set<c10::Symbol> &sets) {
  if (!alias)
    return false;
  bool wildcard = alias->isWildcardBefore() || alias->isWildcardAfter();
  sets.insert(alias->beforeSets().begin(), alias->beforeSets().end());
  sets.insert(alias->afterSets().begin(), alias->afterSets().end());
  for (const c10::AliasInfo &inner : alias->containedTypes())
    wildcard |= collectSets(&inner, sets);
  return wildcard;
}

/// Whether the operator works on lists or dicts of anything: what is in them
/// moves from one to the other, which no schema says.
static bool isGeneric(const c10::FunctionSchema &schema) {
  for (const c10::Argument &argument : schema.arguments())
    if (argument.type()->hasFreeVariables())
      return true;
  return false;
}

void AliasClasses::visit(const tj::Node *node, bool trustSchema) {
  if (unpacksParts(node)) {
    for (const Value *part : node->outputs())
      setView(part, node->input());
    return;
  }
  const c10::FunctionSchema *schema = node->maybeSchema();
  if (schema && isGeneric(*schema)) {
    const Value *first = nullptr;
    auto share = [&](const Value *value) {
      if (!isShared(value->type()))
        return;
      first = first ? first : value;
      unite(first, value);
    };
    for (const Value *input : node->inputs())
      share(input);
    for (const Value *output : node->outputs())
      share(output);
    return;
  }
  for (size_t i = 0; i < node->outputs().size(); ++i) {
    const Value *output = node->outputs()[i];
    bool all = !schema || schema->is_vararg() || i >= schema->returns().size();
    // A container of lists of numbers shares those, too.
    auto shares = [&](const Value *value) {
      return all ? isShared(value->type()) : mayHoldTensor(value->type());
    };
    if (!shares(output))
      continue;
    std::unordered_set<c10::Symbol> outputSets;
    // What is taken out of a tuple has no type of its own there.
    all |= !all &&
           (schema->returns()[i].type()->kind() == c10::TypeKind::AnyType ||
            schema->returns()[i].type()->kind() == c10::TypeKind::VarType);
    if (!all) {
      const c10::AliasInfo *alias = schema->returns()[i].alias_info();
      all = collectSets(alias, outputSets) ||
            (!alias && !trustSchema &&
             (isComposite(*schema) || sharesSilently(*node)));
    }
    for (size_t j = 0; j < node->inputs().size(); ++j) {
      const Value *input = node->inputs()[j];
      if (!shares(input))
        continue;
      bool share = all;
      if (!share && j < schema->arguments().size()) {
        std::unordered_set<c10::Symbol> inputSets;
        share = collectSets(schema->arguments()[j].alias_info(), inputSets);
        for (c10::Symbol set : inputSets)
          share |= outputSets.count(set) != 0;
      }
      if (share)
        unite(output, input);
    }
  }
}

std::string AliasClasses::getOwner(const Value *value) {
  return lookup(find(value)).owner;
}

const tj::Node *AliasClasses::findLaterUse(const Value *value, tj::Node *node) {
  unsigned identity = lookup(value).identity;
  for (const Value *member : lookup(find(value)).members) {
    if (lookup(member).identity == identity || areApart(member, value))
      continue;
    for (const tj::Use &use : member->uses())
      if (use.user != node && use.user->isAfter(node))
        return use.user;
  }
  return nullptr;
}

std::vector<const AliasClasses::Value *>
AliasClasses::getIdentical(const Value *value) {
  std::vector<const Value *> identical;
  unsigned identity = lookup(value).identity;
  for (const Value *member : lookup(find(value)).members)
    if (lookup(member).identity == identity)
      identical.push_back(member);
  return identical;
}
