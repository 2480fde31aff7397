//===- Measure.h - Running a method and counting its bytes ------*- C++ -*-===//

#ifndef KOILA_TOOLS_KOILARUN_MEASURE_H
#define KOILA_TOOLS_KOILARUN_MEASURE_H

#include "DeviceMeasure.h"
#include <ATen/core/ivalue.h>
#include <c10/util/Exception.h>
#include <mutex>
#include <string>
#include <torch/csrc/jit/api/module.h>
#include <vector>

namespace koila::run {

/// How every call is made.
struct CallMode {
  std::string method;
  bool gradMode = false;
  uint64_t seed = 0;
  /// Where the weights and the inputs are.
  c10::Device device = c10::Device(c10::kCPU);
};

/// Threads, and an executor whose memory does not depend on the run number.
void configureExecution(int64_t threads);

/// Collects warnings while it lives, instead of printing each repetition.
class WarningLog : public c10::WarningHandler {
public:
  WarningLog() : guard(this) {}
  void process(const c10::Warning &warning) override;
  /// The warnings since the last call of this, each text once.
  std::vector<std::string> take();

private:
  std::mutex mutex;
  std::vector<std::string> messages;
  c10::WarningUtils::WarningHandlerGuard guard;
};

/// Calls the method once, with the random state of `mode`. Throws UserError
/// with the program's own message if it fails.
c10::IValue call(const torch::jit::Module &module, const std::string &path,
                 const CallMode &mode, const std::vector<c10::IValue> &inputs);

struct MeasuredPeak {
  /// Over three calls after one that is not counted, without what was there
  /// before; outputs count.
  int64_t bytes = 0;
  /// Of a device, over all four.
  std::optional<DevicePeaks> device;
};

/// Peak of what the allocator of the device hands out during a call: on the CPU
/// that of c10.
MeasuredPeak measurePeak(const torch::jit::Module &module,
                         const std::string &path, const CallMode &mode,
                         const std::vector<c10::IValue> &inputs);

/// Milliseconds of one call.
double measureTime(const torch::jit::Module &module, const std::string &path,
                   const CallMode &mode,
                   const std::vector<c10::IValue> &inputs);

} // namespace koila::run

#endif // KOILA_TOOLS_KOILARUN_MEASURE_H
