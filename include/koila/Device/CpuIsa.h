//===- CpuIsa.h - Instruction set and threads of this machine ---*- C++ -*-===//
//
// Inputs of the workspace figures: which instructions oneDNN would use here,
// and how many threads a run has unless it is told otherwise.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_DEVICE_CPUISA_H
#define KOILA_DEVICE_CPUISA_H

#include <cstdint>
#include <string>

namespace koila {

/// oneDNN's name of the newest instruction set that it would use on this
/// processor, for example `avx512_core_bf16`; `ONEDNN_MAX_CPU_ISA` lowers it
/// as it lowers oneDNN. `generic` on other architectures.
std::string getCpuIsa();

/// `OMP_NUM_THREADS` if it is a positive number, else the processors that
/// this process may run on.
int64_t getDefaultThreads();

} // namespace koila

#endif // KOILA_DEVICE_CPUISA_H
