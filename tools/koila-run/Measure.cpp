//===- Measure.cpp - Running a method and counting its bytes --------------===//

#include "Measure.h"
#include "Options.h"
#include "PeakCounter.h"
#include "llvm/ADT/StringRef.h"
#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <algorithm>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <chrono>
#include <torch/csrc/jit/runtime/profiling_graph_executor_impl.h>

using namespace koila::run;

void koila::run::configureExecution(int64_t threads) {
  at::set_num_threads(static_cast<int>(threads));
  // With grad mode on, the profiling executor changes what the second call
  // keeps for backward; koila's figures hold without it.
  torch::jit::getProfilingMode() = false;
}

void WarningLog::process(const c10::Warning &warning) {
  std::lock_guard<std::mutex> lock(mutex);
  std::string text = warning.msg();
  while (!text.empty() && (text.back() == '\n' || text.back() == ' '))
    text.pop_back();
  if (std::find(messages.begin(), messages.end(), text) == messages.end())
    messages.push_back(text);
}

std::vector<std::string> WarningLog::take() {
  std::lock_guard<std::mutex> lock(mutex);
  return std::exchange(messages, {});
}

/// What a program raised: LibTorch's text ends in the message, and shows the
/// stack twice, as stored and as the user wrote it. The message goes first.
static std::string summarize(llvm::StringRef text) {
  text = text.trim();
  auto [before, message] = text.rsplit('\n');
  if (message.empty())
    return text.str();
  constexpr llvm::StringLiteral kOriginal =
      "Traceback of TorchScript, original code (most recent call last):";
  size_t original = before.find(kOriginal);
  if (original == llvm::StringRef::npos)
    return text.str();
  return (message + "\n" + before.substr(original)).str();
}

c10::IValue koila::run::call(const torch::jit::Module &module,
                             const std::string &path, const CallMode &mode,
                             const std::vector<c10::IValue> &inputs) {
  at::AutoGradMode gradMode(mode.gradMode);
  // Programs that draw random numbers draw the same in every call.
  at::manual_seed(mode.seed);
  try {
    return module.get_method(mode.method)(inputs);
  } catch (const c10::Error &error) {
    throw UserError("'" + path +
                    "' failed: " + summarize(error.what_without_backtrace()));
  } catch (const std::exception &error) {
    throw UserError("'" + path + "' failed: " + summarize(error.what()));
  }
}

static MeasuredPeak measureDevice(const torch::jit::Module &module,
                                  const std::string &path, const CallMode &mode,
                                  const std::vector<c10::IValue> &inputs) {
  DeviceStatistics statistics(mode.device);
  DevicePeaks most;
  auto run = [&]() {
    int64_t before = statistics.getAllocated();
    statistics.restartPeaks();
    {
      c10::IValue result = call(module, path, mode, inputs);
      synchronize(mode.device);
    }
    DevicePeaks peaks = statistics.getPeaks();
    most = {std::max(most.allocated, peaks.allocated),
            std::max(most.reserved, peaks.reserved)};
    return peaks.allocated - before;
  };
  run();
  int64_t peak = 0;
  for (int count = 0; count < 3; ++count)
    peak = std::max(peak, run());
  return {peak, most};
}

MeasuredPeak koila::run::measurePeak(const torch::jit::Module &module,
                                     const std::string &path,
                                     const CallMode &mode,
                                     const std::vector<c10::IValue> &inputs) {
  if (!mode.device.is_cpu())
    return measureDevice(module, path, mode, inputs);
  call(module, path, mode, inputs);
  int64_t peak = 0;
  for (int run = 0; run < 3; ++run) {
    auto counter = std::make_shared<PeakCounter>();
    c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, counter);
    // Destroyed under the counter, before the next call.
    c10::IValue result = call(module, path, mode, inputs);
    peak = std::max(peak, counter->getPeak());
  }
  return {peak, std::nullopt};
}

double koila::run::measureTime(const torch::jit::Module &module,
                               const std::string &path, const CallMode &mode,
                               const std::vector<c10::IValue> &inputs) {
  auto start = std::chrono::steady_clock::now();
  c10::IValue result = call(module, path, mode, inputs);
  synchronize(mode.device);
  auto end = std::chrono::steady_clock::now();
  return std::chrono::duration<double, std::milli>(end - start).count();
}
