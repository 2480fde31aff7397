//===- SnapshotSettings.h - The settings of a snapshot ----------*- C++ -*-===//

#ifndef KOILA_LIB_ALLOCATORS_SNAPSHOT_SNAPSHOTSETTINGS_H
#define KOILA_LIB_ALLOCATORS_SNAPSHOT_SNAPSHOTSETTINGS_H

#include "koila/Allocators/Snapshot.h"

namespace koila {

/// As PyTorch writes them.
std::vector<std::pair<std::string, Snapshot::Value>>
describeSettings(const CachingAllocatorSettings &settings);

} // namespace koila

#endif // KOILA_LIB_ALLOCATORS_SNAPSHOT_SNAPSHOTSETTINGS_H
