//===- Towers.cpp - Parts of a program that meet late ---------------------===//

#include "Towers.h"
#include "llvm/ADT/EquivalenceClasses.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SetVector.h"
#include <map>

using namespace mlir;
using namespace koila;

namespace {
/// What is connected among the operations up to one level, and has operations
/// of it.
struct Tower {
  unsigned level;
  SmallVector<Operation *> ops;
  /// What it was before that, in parts.
  llvm::SetVector<unsigned> parts;
  std::optional<unsigned> meeting;
  /// That of its first operation in the program.
  size_t place = 0;
  bool isLast = false;
  /// Whether it has operations of several levels.
  bool isDeep() const { return !parts.empty(); }
};

class TowerOrder {
public:
  TowerOrder(
      const Levels &levels,
      llvm::function_ref<SmallVector<Operation *>(Operation *)> getMakers,
      llvm::function_ref<bool(Operation *)> isLast)
      : levels(levels) {
    std::map<unsigned, SmallVector<Operation *>> byLevel;
    for (auto [index, entry] : llvm::enumerate(levels)) {
      byLevel[entry.second].push_back(entry.first);
      places[entry.first] = index;
    }
    for (auto &[level, ops] : byLevel)
      addLevel(level, ops, getMakers, isLast);
  }

  Levels order() {
    // What never meets is returned.
    SmallVector<unsigned> all;
    for (auto [index, tower] : llvm::enumerate(towers))
      if (!tower.meeting)
        all.push_back(index);
    assignAll(all);
    if (!isSplit)
      return levels;
    Levels found;
    for (auto [op, level] : levels)
      found[op] = assigned.lookup(op);
    return found;
  }

private:
  /// The tower that `op`, of a lower level, is part of now.
  unsigned getTower(Operation *op) {
    unsigned tower = towerOf.lookup(op), last = tower;
    while (towers[last].meeting)
      last = *towers[last].meeting;
    while (towers[tower].meeting)
      tower = std::exchange(*towers[tower].meeting, last);
    return last;
  }

  void
  addLevel(unsigned level, ArrayRef<Operation *> ops,
           llvm::function_ref<SmallVector<Operation *>(Operation *)> getMakers,
           llvm::function_ref<bool(Operation *)> isLast) {
    llvm::EquivalenceClasses<Operation *> groups;
    llvm::DenseMap<unsigned, Operation *> readers;
    for (Operation *op : ops) {
      groups.insert(op);
      for (Operation *maker : getMakers(op)) {
        auto known = levels.find(maker);
        if (known == levels.end())
          continue;
        if (known->second == level) {
          groups.unionSets(op, maker);
          continue;
        }
        auto [reader, isNew] = readers.try_emplace(getTower(maker), op);
        if (!isNew)
          groups.unionSets(op, reader->second);
      }
    }
    llvm::MapVector<Operation *, Tower> found;
    for (Operation *op : ops) {
      Tower &tower = found.try_emplace(groups.getLeaderValue(op), Tower{level})
                         .first->second;
      if (tower.ops.empty())
        tower.place = places.lookup(op);
      tower.ops.push_back(op);
      tower.isLast |= isLast(op);
    }
    for (auto [part, reader] : readers)
      found[groups.getLeaderValue(reader)].parts.insert(part);
    for (Tower &tower : llvm::make_second_range(found)) {
      for (unsigned part : tower.parts) {
        towers[part].meeting = towers.size();
        tower.place = std::min(tower.place, towers[part].place);
        tower.isLast |= towers[part].isLast;
      }
      for (Operation *op : tower.ops)
        towerOf[op] = towers.size();
      towers.push_back(std::move(tower));
    }
  }

  /// Gives the towers `parts` their levels, of which none is below what is
  /// free.
  void assignAll(ArrayRef<unsigned> parts) {
    SmallVector<unsigned> deep;
    for (unsigned part : parts) {
      if (towers[part].isDeep())
        deep.push_back(part);
    }
    isSplit |= deep.size() > 1;
    unsigned begin = free;
    llvm::sort(deep, [&](unsigned lhs, unsigned rhs) {
      return std::pair(towers[lhs].isLast, towers[lhs].place) <
             std::pair(towers[rhs].isLast, towers[rhs].place);
    });
    // What has one level alone is no tower: it is there from the beginning.
    unsigned end = begin;
    for (unsigned part : parts)
      if (!towers[part].isDeep()) {
        free = begin;
        assign(towers[part]);
        end = std::max(end, free);
      }
    free = begin;
    for (unsigned part : deep)
      assign(towers[part]);
    free = std::max(free, end);
  }

  void assign(const Tower &tower) {
    assignAll(tower.parts.getArrayRef());
    unsigned level = std::max(free, tower.level);
    for (Operation *op : tower.ops)
      assigned[op] = level;
    free = level + 1;
  }

  const Levels &levels;
  llvm::DenseMap<Operation *, size_t> places;
  std::vector<Tower> towers;
  llvm::DenseMap<Operation *, unsigned> towerOf, assigned;
  /// The first level that is free.
  unsigned free = 0;
  bool isSplit = false;
};
} // namespace

Levels koila::orderTowers(
    const Levels &levels,
    llvm::function_ref<SmallVector<Operation *>(Operation *)> getMakers,
    llvm::function_ref<bool(Operation *)> isLast) {
  return TowerOrder(levels, getMakers, isLast).order();
}
