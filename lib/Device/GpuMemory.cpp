//===- GpuMemory.cpp - How much memory a GPU has left ---------------------===//
//
// Sources: CUDA Driver API Reference (device management), NVML API Reference
// (device queries). The driver knows which GPU is the first one of this
// process, NVML what is free there without a context.
//
//===----------------------------------------------------------------------===//

#include "koila/Device/GpuMemory.h"

#ifndef KOILA_HAS_CUDA_HEADERS

static llvm::Error makeError() {
  return llvm::createStringError(
      "this koila was built without the headers of the CUDA toolkit");
}

llvm::Expected<koila::FreeMemory>
koila::getFreeGpuMemory(const GpuLibraries &) {
  return makeError();
}

llvm::Expected<koila::GpuCard> koila::getGpuCard(int64_t,
                                                 const GpuLibraries &) {
  return makeError();
}

#else

#include "koila/Support/ByteSize.h"
#include "llvm/ADT/ScopeExit.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/DynamicLibrary.h"
#include <cuda.h>
#include <nvml.h>

using namespace koila;
using llvm::Error;
using llvm::StringRef;
using llvm::Twine;

namespace {
/// A library that is loaded by name.
class Library {
public:
  static llvm::Expected<Library> load(const std::string &name) {
    std::string problem;
    auto loaded =
        llvm::sys::DynamicLibrary::getPermanentLibrary(name.c_str(), &problem);
    if (!loaded.isValid())
      return llvm::createStringError("no driver of a GPU: " + problem);
    return Library(name, loaded);
  }
  /// Whether it has the function, which `function` is then.
  template <typename FunctionT>
  Error find(const char *symbol, FunctionT &function) {
    function = reinterpret_cast<FunctionT>(library.getAddressOfSymbol(symbol));
    if (function)
      return Error::success();
    return llvm::createStringError("'" + Twine(name) + "' has no '" + symbol +
                                   "'");
  }

private:
  Library(std::string name, llvm::sys::DynamicLibrary library)
      : name(std::move(name)), library(library) {}

  std::string name;
  llvm::sys::DynamicLibrary library;
};

/// What is asked of NVML.
struct Management {
  decltype(&nvmlInit_v2) begin = nullptr;
  decltype(&nvmlShutdown) end = nullptr;
  decltype(&nvmlErrorString) describe = nullptr;
  decltype(&nvmlDeviceGetHandleByUUID) getHandle = nullptr;
  decltype(&nvmlDeviceGetMemoryInfo) getMemory = nullptr;
  decltype(&nvmlDeviceGetName) getName = nullptr;
  /// Drivers before 510 do not have it.
  decltype(&nvmlDeviceGetComputeRunningProcesses_v3) getProcesses = nullptr;

  Error load(const std::string &name);
  Error check(nvmlReturn_t result, StringRef call) const {
    if (result == NVML_SUCCESS)
      return Error::success();
    return llvm::createStringError(call + ": " + describe(result));
  }
  llvm::Expected<FreeMemory> read(StringRef uuid) const;
  std::string describeOthers(nvmlDevice_t device) const;
};
} // namespace

Error Management::load(const std::string &name) {
  auto library = Library::load(name);
  if (!library)
    return library.takeError();
  llvm::consumeError(
      library->find("nvmlDeviceGetComputeRunningProcesses_v3", getProcesses));
  Error missing = library->find("nvmlInit_v2", begin);
  auto find = [&](const char *symbol, auto &function) {
    missing =
        llvm::joinErrors(std::move(missing), library->find(symbol, function));
  };
  find("nvmlShutdown", end);
  find("nvmlErrorString", describe);
  find("nvmlDeviceGetHandleByUUID", getHandle);
  find("nvmlDeviceGetMemoryInfo", getMemory);
  find("nvmlDeviceGetName", getName);
  return missing;
}

/// What they have, as far as the driver tells.
std::string Management::describeOthers(nvmlDevice_t device) const {
  unsigned count = 0;
  if (!getProcesses ||
      getProcesses(device, &count, nullptr) != NVML_ERROR_INSUFFICIENT_SIZE)
    return "";
  // Some may have started meanwhile.
  count += 8;
  llvm::SmallVector<nvmlProcessInfo_t> processes(count);
  if (getProcesses(device, &count, processes.data()) != NVML_SUCCESS)
    return "";
  int64_t bytes = 0;
  for (const nvmlProcessInfo_t &process :
       llvm::ArrayRef(processes).take_front(count))
    // In a container the driver may not know.
    if (process.usedGpuMemory != uint64_t(NVML_VALUE_NOT_AVAILABLE))
      bytes += process.usedGpuMemory;
  return (", where " + Twine(count) +
          (count == 1 ? " process has " : " processes have ") +
          formatBytes(bytes))
      .str();
}

llvm::Expected<FreeMemory> Management::read(StringRef uuid) const {
  nvmlDevice_t device;
  // A part of a GPU has another prefix.
  nvmlReturn_t found = getHandle(("GPU-" + uuid).str().c_str(), &device);
  if (found == NVML_ERROR_NOT_FOUND || found == NVML_ERROR_INVALID_ARGUMENT)
    found = getHandle(("MIG-" + uuid).str().c_str(), &device);
  if (Error error = check(found, "nvmlDeviceGetHandleByUUID"))
    return error;
  nvmlMemory_t memory;
  if (Error error =
          check(getMemory(device, &memory), "nvmlDeviceGetMemoryInfo"))
    return error;
  char name[NVML_DEVICE_NAME_V2_BUFFER_SIZE] = "a GPU";
  if (Error error =
          check(getName(device, name, sizeof(name)), "nvmlDeviceGetName"))
    return error;
  return FreeMemory{static_cast<int64_t>(memory.free),
                    "the driver of '" + std::string(name) + "', of " +
                        formatBytes(memory.total) + describeOthers(device)};
}

/// As NVML writes it, without its prefix.
static std::string format(const CUuuid &uuid) {
  std::string text;
  for (auto [index, byte] : llvm::enumerate(uuid.bytes)) {
    if (index == 4 || index == 6 || index == 8 || index == 10)
      text += '-';
    text +=
        llvm::toHex(llvm::ArrayRef<uint8_t>(uint8_t(byte)), /*LowerCase=*/true);
  }
  return text;
}

namespace {
/// What is asked of the driver of one GPU.
class Driver {
public:
  static llvm::Expected<Driver> open(const std::string &name, int64_t number);
  /// Nothing but its number tells it from others of its kind.
  llvm::Expected<std::string> getUuid() const;
  llvm::Expected<GpuCard> describe() const;

private:
  Error check(CUresult result, StringRef call) const {
    if (result == CUDA_SUCCESS)
      return Error::success();
    const char *text = nullptr;
    describeError(result, &text);
    return llvm::createStringError(call + ": " +
                                   (text ? text : "unknown error"));
  }

  decltype(&cuGetErrorString) describeError = nullptr;
  decltype(&cuDeviceGetUuid_v2) readUuid = nullptr;
  decltype(&cuDeviceGetName) readName = nullptr;
  decltype(&cuDeviceGetAttribute) readAttribute = nullptr;
  CUdevice device = 0;
};
} // namespace

llvm::Expected<Driver> Driver::open(const std::string &name, int64_t number) {
  auto library = Library::load(name);
  if (!library)
    return library.takeError();
  Driver driver;
  decltype(&cuInit) begin;
  decltype(&cuDeviceGet) getDevice;
  Error missing = library->find("cuInit", begin);
  auto find = [&](const char *symbol, auto &function) {
    missing =
        llvm::joinErrors(std::move(missing), library->find(symbol, function));
  };
  find("cuGetErrorString", driver.describeError);
  find("cuDeviceGet", getDevice);
  find("cuDeviceGetUuid_v2", driver.readUuid);
  find("cuDeviceGetName", driver.readName);
  find("cuDeviceGetAttribute", driver.readAttribute);
  if (missing)
    return missing;
  if (Error error = driver.check(begin(/*Flags=*/0), "cuInit"))
    return error;
  if (Error error =
          driver.check(getDevice(&driver.device, number), "cuDeviceGet"))
    return error;
  return driver;
}

llvm::Expected<std::string> Driver::getUuid() const {
  CUuuid uuid;
  if (Error error = check(readUuid(&uuid, device), "cuDeviceGetUuid"))
    return error;
  return format(uuid);
}

llvm::Expected<GpuCard> Driver::describe() const {
  char name[256] = "";
  if (Error error =
          check(readName(name, sizeof(name), device), "cuDeviceGetName"))
    return error;
  auto read = [&](CUdevice_attribute attribute, int64_t &value) -> Error {
    int number = 0;
    Error error = check(readAttribute(&number, attribute, device),
                        "cuDeviceGetAttribute");
    value = number;
    return error;
  };
  GpuCard card;
  card.name = name;
  if (Error error =
          read(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, card.major))
    return error;
  if (Error error =
          read(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, card.minor))
    return error;
  if (Error error =
          read(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, card.multiprocessors))
    return error;
  return card;
}

llvm::Expected<GpuCard> koila::getGpuCard(int64_t number,
                                          const GpuLibraries &libraries) {
  auto driver = Driver::open(libraries.driver, number);
  if (!driver)
    return driver.takeError();
  return driver->describe();
}

llvm::Expected<FreeMemory>
koila::getFreeGpuMemory(const GpuLibraries &libraries) {
  auto driver = Driver::open(libraries.driver, /*number=*/0);
  if (!driver)
    return driver.takeError();
  auto uuid = driver->getUuid();
  if (!uuid)
    return uuid.takeError();
  Management management;
  if (Error error = management.load(libraries.management))
    return error;
  if (Error error = management.check(management.begin(), "nvmlInit"))
    return error;
  llvm::scope_exit stop([&] { management.end(); });
  return management.read(*uuid);
}

#endif // KOILA_HAS_CUDA_HEADERS
