//===- MemoryCounter.cpp - what the CPU allocator handed out --------------===//

#include "MemoryCounter.h"
#include <ATen/core/Tensor.h>
#include <ATen/record_function.h>
#include <algorithm>
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <mutex>
#include <pthread.h>
#include <unordered_map>

using namespace koila;

namespace {

struct Level {
  int64_t live = 0, peak = 0;

  void change(int64_t amount) {
    live += amount;
    peak = std::max(peak, live);
  }
};

struct Flow {
  int64_t in = 0, out = 0;
};

/// Of the process, or of what a thread saw since its last lap.
struct Account {
  Level bytes, blocks;
  Flow byteFlow, blockFlow;

  void restartPeaks() {
    bytes.peak = bytes.live;
    blocks.peak = blocks.live;
  }
  void clearFlows() { byteFlow = blockFlow = Flow(); }
  MemoryFigures getFigures() const {
    return {bytes.live,  bytes.peak,  byteFlow.in,  byteFlow.out,
            blocks.live, blocks.peak, blockFlow.in, blockFlow.out};
  }
};

struct Block {
  int64_t bytes;
  void *context;
  c10::DeleterFnPtr release;
};

/// Of a thread with laps.
struct Lapped {
  Account account;
  bool isListed = false;

  ~Lapped();
};

struct Counter {
  std::mutex mutex;
  std::unordered_map<void *, Block> blocks;
  Account process;
  /// What threads without laps did since the last lap of any.
  Flow restBytes, restBlocks;
  std::vector<Lapped *> threads;
  /// What all threads without a log of their own hand out and take back.
  std::unique_ptr<std::vector<AllocatorEvent>> sharedLog;
  c10::Allocator *first = nullptr;

  void count(Lapped &own, int64_t bytes, bool isFree);
};

/// Counts what it hands out, of another.
class CountingAllocator final : public c10::Allocator {
public:
  explicit CountingAllocator(c10::Allocator *counted) : counted(counted) {}
  c10::DataPtr allocate(size_t bytes) override;
  c10::DeleterFnPtr raw_deleter() const override;
  void copy_data(void *to, const void *from, size_t bytes) const override {
    counted->copy_data(to, from, bytes);
  }

private:
  c10::Allocator *counted;
};

} // namespace

namespace {
struct OperatorLog {
  std::vector<OperatorFigures> operators;
  at::CallbackHandle handle = 0;
  int64_t base = 0, peak = 0;
  bool isInside = false;
};

/// What there was when an operator started.
struct Started final : at::ObserverContext {
  explicit Started(const MemoryFigures &figures) : figures(figures) {}
  MemoryFigures figures;
};
} // namespace

/// Never freed: tensors outlive what is destroyed at exit.
static Counter &getCounter() {
  static auto *counter = new Counter;
  return *counter;
}

static thread_local Lapped lapped;
/// What this thread itself handed out and took back.
static thread_local Level ownBytes;
/// What this thread hands out and takes back, while it is noted.
static thread_local std::unique_ptr<std::vector<AllocatorEvent>> eventLog;
/// One that counts may stand before another, where a third came between.
static thread_local bool isCounting = false;

Lapped::~Lapped() {
  if (isListed)
    endCPULaps();
}

/// The lock of the counter is held.
static void note(Counter &counter, void *data, int64_t bytes) {
  if (auto *log = eventLog ? eventLog.get() : counter.sharedLog.get())
    log->push_back({reinterpret_cast<uintptr_t>(data), bytes});
}

void Counter::count(Lapped &own, int64_t bytes, bool isFree) {
  auto flow = [&](Flow &bytesFlow, Flow &blocksFlow) {
    (isFree ? bytesFlow.out : bytesFlow.in) += bytes;
    (isFree ? blocksFlow.out : blocksFlow.in) += 1;
  };
  auto change = [&](Account &account) {
    account.bytes.change(isFree ? -bytes : bytes);
    account.blocks.change(isFree ? -1 : 1);
  };
  change(process);
  ownBytes.change(isFree ? -bytes : bytes);
  flow(process.byteFlow, process.blockFlow);
  for (Lapped *thread : threads)
    change(thread->account);
  if (own.isListed)
    flow(own.account.byteFlow, own.account.blockFlow);
  else
    flow(restBytes, restBlocks);
}

static void release(void *data) {
  Counter &counter = getCounter();
  Block block{0, data, counter.first->raw_deleter()};
  {
    std::lock_guard lock(counter.mutex);
    // PyTorch frees by the allocator of today what that of yesterday made.
    auto entry = counter.blocks.find(data);
    if (entry != counter.blocks.end()) {
      block = entry->second;
      counter.blocks.erase(entry);
      counter.count(lapped, block.bytes, /*isFree=*/true);
      note(counter, data, -block.bytes);
    }
  }
  block.release(block.context);
}

c10::DeleterFnPtr CountingAllocator::raw_deleter() const { return release; }

c10::DataPtr CountingAllocator::allocate(size_t bytes) {
  if (isCounting)
    return counted->allocate(bytes);
  isCounting = true;
  struct Reset {
    ~Reset() { isCounting = false; }
  } reset;
  c10::DataPtr made = counted->allocate(bytes);
  void *data = made.get();
  if (!data || made.get_deleter() == release)
    return made;
  Counter &counter = getCounter();
  c10::Device device = made.device();
  std::lock_guard lock(counter.mutex);
  counter.blocks[data] = {static_cast<int64_t>(bytes), made.get_context(),
                          made.get_deleter()};
  (void)made.release_context();
  counter.count(lapped, static_cast<int64_t>(bytes), /*isFree=*/false);
  note(counter, data, static_cast<int64_t>(bytes));
  return {data, data, release, device};
}

/// Lets the counter know a block that is live already.
static void adopt(Counter &counter, c10::Allocator *allocator,
                  const at::Tensor &tensor) {
  if (!tensor.device().is_cpu() || !tensor.has_storage())
    return;
  c10::StorageImpl *storage = tensor.storage().unsafeGetStorageImpl();
  c10::DeleterFnPtr deleter = counter.first->raw_deleter();
  if (!deleter || storage->allocator() != counter.first)
    return;
  c10::DataPtr &data = storage->_mutable_data_ptr_no_checks();
  if (!data || data.get_context() != data.get() ||
      !data.compare_exchange_deleter(deleter, release))
    return;
  storage->set_allocator(allocator);
  auto bytes = static_cast<int64_t>(storage->nbytes());
  std::lock_guard lock(counter.mutex);
  counter.blocks[data.get()] = {bytes, data.get(), deleter};
  auto change = [&](Account &account) {
    account.bytes.change(bytes);
    account.blocks.change(1);
  };
  change(counter.process);
  ownBytes.change(bytes);
  for (Lapped *thread : counter.threads)
    change(thread->account);
}

void koila::countCPUMemory(const std::vector<at::Tensor> &tensors) {
  Counter &counter = getCounter();
  c10::Allocator *current = c10::GetAllocator(c10::DeviceType::CPU);
  if (!dynamic_cast<CountingAllocator *>(current)) {
    if (!counter.first) {
      counter.first = current;
      // A child must not find the lock taken by a thread that it does not have.
      pthread_atfork([] { getCounter().mutex.lock(); },
                     [] { getCounter().mutex.unlock(); },
                     [] { getCounter().mutex.unlock(); });
    }
    current = new CountingAllocator(current);
    c10::SetCPUAllocator(current, /*priority=*/255);
  }
  for (const at::Tensor &tensor : tensors)
    adopt(counter, current, tensor);
}

MemoryFigures koila::getCPUMemory() {
  Counter &counter = getCounter();
  std::lock_guard lock(counter.mutex);
  return counter.process.getFigures();
}

void koila::restartCPUPeak() {
  Counter &counter = getCounter();
  std::lock_guard lock(counter.mutex);
  counter.process.restartPeaks();
  ownBytes.peak = ownBytes.live;
}

std::array<int64_t, 2> koila::getThreadCPUMemory() {
  return {ownBytes.live, ownBytes.peak};
}

MemoryFigures koila::takeCPULap() {
  Counter &counter = getCounter();
  std::lock_guard lock(counter.mutex);
  Account &account = lapped.account;
  if (!lapped.isListed) {
    lapped.isListed = true;
    counter.threads.push_back(&lapped);
    // What came before belongs to no lap.
    if (counter.threads.size() == 1)
      counter.restBytes = counter.restBlocks = Flow();
    account.bytes = counter.process.bytes;
    account.blocks = counter.process.blocks;
    account.clearFlows();
    account.restartPeaks();
    return account.getFigures();
  }
  account.byteFlow.in += counter.restBytes.in;
  account.byteFlow.out += counter.restBytes.out;
  account.blockFlow.in += counter.restBlocks.in;
  account.blockFlow.out += counter.restBlocks.out;
  counter.restBytes = counter.restBlocks = Flow();
  MemoryFigures figures = account.getFigures();
  account.clearFlows();
  account.restartPeaks();
  return figures;
}

void koila::endCPULaps() {
  Counter &counter = getCounter();
  std::lock_guard lock(counter.mutex);
  if (!lapped.isListed)
    return;
  lapped.isListed = false;
  std::erase(counter.threads, &lapped);
}

void koila::startEventLog(bool ofAllThreads) {
  auto log = std::make_unique<std::vector<AllocatorEvent>>();
  if (!ofAllThreads) {
    eventLog = std::move(log);
    return;
  }
  Counter &counter = getCounter();
  std::lock_guard lock(counter.mutex);
  counter.sharedLog = std::move(log);
}

std::vector<AllocatorEvent> koila::stopEventLog() {
  auto log = std::move(eventLog);
  if (!log) {
    Counter &counter = getCounter();
    std::lock_guard lock(counter.mutex);
    log = std::move(counter.sharedLog);
  }
  return log ? std::move(*log) : std::vector<AllocatorEvent>();
}

//===----------------------------------------------------------------------===//
// Operators
//===----------------------------------------------------------------------===//

static thread_local std::unique_ptr<OperatorLog> operatorLog;

/// The process, whose peak starts anew.
static MemoryFigures takePeak(OperatorLog &log) {
  Counter &counter = getCounter();
  std::lock_guard lock(counter.mutex);
  MemoryFigures figures = counter.process.getFigures();
  counter.process.restartPeaks();
  log.peak = std::max(log.peak, figures[1] - log.base);
  return figures;
}

static std::unique_ptr<at::ObserverContext>
startOperator(const at::RecordFunction &function) {
  OperatorLog *log = operatorLog.get();
  if (!log || log->isInside ||
      std::string_view(function.name()).substr(0, 6) != "aten::")
    return nullptr;
  log->isInside = true;
  return std::make_unique<Started>(takePeak(*log));
}

static void endOperator(const at::RecordFunction &function,
                        at::ObserverContext *context) {
  OperatorLog *log = operatorLog.get();
  if (!log || !context)
    return;
  log->isInside = false;
  MemoryFigures before = static_cast<Started *>(context)->figures;
  MemoryFigures after = takePeak(*log);
  // Handed out and taken back: views do neither.
  if (before[2] != after[2] || before[3] != after[3])
    log->operators.push_back(
        {function.name(), after[0] - log->base, after[1] - log->base});
}

void koila::startOperatorLog() {
  operatorLog = std::make_unique<OperatorLog>();
  operatorLog->base = getCPUMemory()[0];
  restartCPUPeak();
  operatorLog->handle = at::addThreadLocalCallback(
      at::RecordFunctionCallback(startOperator, endOperator)
          .scopes({at::RecordScope::FUNCTION}));
}

std::pair<std::vector<OperatorFigures>, int64_t> koila::stopOperatorLog() {
  std::unique_ptr<OperatorLog> log = std::move(operatorLog);
  if (!log)
    return {};
  at::removeCallback(log->handle);
  takePeak(*log);
  return {std::move(log->operators), log->peak};
}
