//===- CpuIsa.cpp - Instruction set and threads of this machine -----------===//
//
// oneDNN picks kernels, and with them their buffers, by instruction set. It
// is asked by CPUID here and not through oneDNN, since analyses run without
// LibTorch. The sets form a lattice, not a line (AVX2 with VNNI is no part of
// AVX-512), so both the processor and ONEDNN_MAX_CPU_ISA are bit masks and a
// set is in use if both have all its bits.
//
//===----------------------------------------------------------------------===//

#include "koila/Device/CpuIsa.h"
#include "llvm/ADT/StringRef.h"
#include <cstdlib>
#include <thread>

#if defined(__x86_64__) || defined(_M_X64)
#include <cpuid.h>
#endif
#if defined(__linux__)
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

using namespace koila;

namespace {
enum Feature : unsigned {
  Sse41 = 1 << 0,
  Avx = 1 << 1,
  Avx2 = 1 << 2,
  AvxVnni = 1 << 3,
  AvxVnni2 = 1 << 4,
  Avx512 = 1 << 5,
  Avx512Vnni = 1 << 6,
  Avx512Bf16 = 1 << 7,
  Avx512Fp16 = 1 << 8,
  Amx = 1 << 9,
  AmxFp16 = 1 << 10
};

struct Isa {
  const char *name;
  /// Another spelling that oneDNN takes in its environment variable.
  const char *alias;
  unsigned features;
};
} // namespace

static constexpr unsigned kAvx2 = Sse41 | Avx | Avx2;
static constexpr unsigned kBf16 = kAvx2 | Avx512 | Avx512Vnni | Avx512Bf16;
static constexpr unsigned kFp16 = kBf16 | Avx512Fp16 | AvxVnni;

/// In the order in which oneDNN asks.
static constexpr Isa kIsas[] = {
    {"avx512_core_amx_fp16", "avx10_1_512_amx_fp16", kFp16 | Amx | AmxFp16},
    {"avx512_core_amx", "avx10_1_512_amx", kFp16 | Amx},
    {"avx512_core_fp16", "avx10_1_512", kFp16},
    {"avx512_core_bf16", "", kBf16},
    {"avx512_core_vnni", "", kAvx2 | Avx512 | Avx512Vnni},
    {"avx512_core", "", kAvx2 | Avx512},
    {"avx2_vnni_2", "", kAvx2 | AvxVnni | AvxVnni2},
    {"avx2_vnni", "", kAvx2 | AvxVnni},
    {"avx2", "", kAvx2},
    {"avx", "", Sse41 | Avx},
    {"sse41", "", Sse41},
};

/// Whether a process may ask for the tiles of AMX, as oneDNN does. Source:
/// amx::init in oneDNN's cpu_isa_traits.
static bool offersTiles() {
#if defined(__linux__) && defined(SYS_arch_prctl)
  constexpr int kGetSupported = 0x1021; // ARCH_GET_XCOMP_SUPP
  constexpr unsigned long kTiles = 1ul << 18;
  unsigned long supported = 0;
  return syscall(SYS_arch_prctl, kGetSupported, &supported) == 0 &&
         (supported & kTiles) != 0;
#else
  return true;
#endif
}

/// What the processor has and the operating system saves.
static unsigned detectFeatures() {
  unsigned features = 0;
#if defined(__x86_64__) || defined(_M_X64)
  unsigned eax, ebx, ecx, edx;
  if (!__get_cpuid(1, &eax, &ebx, &ecx, &edx))
    return 0;
  auto add = [&](bool present, unsigned feature) {
    features |= present ? feature : 0;
  };
  auto bit = [](unsigned value, unsigned index) {
    return ((value >> index) & 1) != 0;
  };
  add(bit(ecx, 19), Sse41);
  unsigned saved = 0;
  if (bit(ecx, 27)) {
    unsigned high;
    __asm__ volatile("xgetbv" : "=a"(saved), "=d"(high) : "c"(0));
  }
  bool savesYmm = (saved & 0x6) == 0x6;
  bool savesZmm = (saved & 0xe6) == 0xe6;
  bool savesTiles = (saved & 0x60000) == 0x60000 && offersTiles();
  add(bit(ecx, 28) && savesYmm, Avx);
  if (!__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx))
    return features;
  unsigned subleaves = eax;
  bool avx512 = bit(ebx, 16) && bit(ebx, 17) && bit(ebx, 30) && bit(ebx, 31);
  add(bit(ebx, 5) && savesYmm, Avx2);
  add(avx512 && savesZmm, Avx512);
  add(bit(ecx, 11) && savesZmm, Avx512Vnni);
  add(bit(edx, 23) && savesZmm, Avx512Fp16);
  add(bit(edx, 22) && bit(edx, 24) && bit(edx, 25) && savesTiles, Amx);
  if (subleaves < 1 || !__get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx))
    return features;
  add(bit(eax, 4) && savesYmm, AvxVnni);
  add(bit(eax, 5) && savesZmm, Avx512Bf16);
  add(bit(eax, 21) && savesTiles, AmxFp16);
  add(bit(edx, 4) && bit(edx, 5) && savesYmm, AvxVnni2);
#endif
  return features;
}

/// What ONEDNN_MAX_CPU_ISA allows; oneDNN ignores values it does not know.
static unsigned getAllowedFeatures() {
  const char *variable = std::getenv("ONEDNN_MAX_CPU_ISA");
  if (!variable)
    variable = std::getenv("DNNL_MAX_CPU_ISA");
  if (!variable)
    return ~0u;
  for (const Isa &isa : kIsas)
    if (llvm::StringRef(variable).equals_insensitive(isa.name) ||
        (*isa.alias && llvm::StringRef(variable).equals_insensitive(isa.alias)))
      return isa.features;
  return ~0u;
}

std::string koila::getCpuIsa() {
  // The processor is asked once: in a virtual machine each question is slow.
  static const unsigned present = detectFeatures();
  unsigned features = present & getAllowedFeatures();
  for (const Isa &isa : kIsas)
    if ((features & isa.features) == isa.features)
      return isa.name;
  return "generic";
}

int64_t koila::getDefaultThreads() {
  if (const char *variable = std::getenv("OMP_NUM_THREADS")) {
    // A list gives one number per level of nesting; the first counts.
    int64_t threads;
    if (!llvm::StringRef(variable).split(',').first.trim().getAsInteger(
            10, threads) &&
        threads > 0)
      return threads;
  }
#if defined(__linux__)
  cpu_set_t processors;
  CPU_ZERO(&processors);
  if (sched_getaffinity(0, sizeof(processors), &processors) == 0)
    if (int count = CPU_COUNT(&processors); count > 0)
      return count;
#endif
  unsigned cores = std::thread::hardware_concurrency();
  return cores ? cores : 1;
}
