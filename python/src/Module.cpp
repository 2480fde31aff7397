//===- Module.cpp - koila._C: modules between Python and koila ------------===//

#include "Allocator.h"
#include "CustomOperators.h"
#include "Extensions.h"
#include "Guards.h"
#include "MemoryCounter.h"
#include "koila/Device/HostMemory.h"
#include "koila/KernelModels/DeviceProfile.h"
#include "koila/Support/ByteSize.h"
#include "koila/Support/OutputFile.h"
#include "koila/Target/TorchScript/InProcess.h"
#include "koila/Target/TorchScript/TorchScript.h"
#include "llvm/Support/raw_ostream.h"
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/csrc/jit/python/module_python.h>
#include <torch/csrc/jit/python/pybind_utils.h>
#include <torch/csrc/jit/serialization/export.h>
#include <torch/extension.h>

namespace py = pybind11;
using namespace koila;
using namespace koila::torchscript;

static InProcessOptions makeOptions(std::string name, std::string method,
                                    std::optional<std::string> loss,
                                    std::vector<std::string> inputs,
                                    std::vector<std::string> batch,
                                    std::string batchSymbol,
                                    std::string pipeline, std::string device,
                                    std::vector<size_t> fromHost) {
  InProcessOptions options;
  options.name = std::move(name);
  options.method = std::move(method);
  options.loss = std::move(loss);
  options.inputs = std::move(inputs);
  options.batch = std::move(batch);
  options.batchSymbol = std::move(batchSymbol);
  options.pipeline = std::move(pipeline);
  options.device = std::move(device);
  options.fromHost = std::move(fromHost);
  return options;
}

static py::dict toDict(const InProcessResult &result) {
  py::dict dict;
  dict["succeeded"] = result.succeeded;
  dict["messages"] = py::bytes(result.messages);
  dict["report"] = py::bytes(result.report);
  dict["tile"] = py::cast(result.tile);
  dict["module"] =
      result.module ? py::cast(*result.module) : py::object(py::none());
  return dict;
}

static torch::jit::Module getModule(const py::object &script) {
  auto module = torch::jit::as_module(script);
  if (!module)
    throw py::type_error("not a torch.jit.ScriptModule");
  return *module;
}

static py::dict runOnModule(const py::object &script,
                            const InProcessOptions &options, bool emit) {
  return toDict(runInProcess(getModule(script), options, emit));
}

/// A module without methods. What Python itself makes belongs to a compilation
/// unit that lives as long as the process.
static py::object makeModule(
    const std::string &name,
    const std::shared_ptr<torch::jit::CompilationUnit> &unit,
    const std::vector<std::pair<std::string, at::Tensor>> &parameters,
    const std::vector<std::pair<std::string, at::Tensor>> &buffers,
    const std::vector<std::pair<std::string, torch::jit::Module>> &modules) {
  torch::jit::Module made(name, unit, /*shouldMangle=*/true);
  for (const auto &[key, tensor] : parameters)
    made.register_parameter(key, tensor, /*is_buffer=*/false);
  for (const auto &[key, tensor] : buffers)
    made.register_buffer(key, tensor);
  for (const auto &[key, part] : modules)
    made.register_module(key, part);
  return py::cast(made);
}

/// Writes a module as torch.jit.save does, which ends the process where the
/// disk is full. Returns errno, 0 if all is there, and the bytes.
static std::pair<int, uint64_t> saveModule(const py::object &script,
                                           const std::string &path) {
  std::error_code code;
  llvm::raw_fd_ostream os(path, code);
  if (code)
    return {code.value(), 0};
  torch::jit::ExportModule(getModule(script),
                           [&](const void *data, size_t size) {
                             os.write(static_cast<const char *>(data), size);
                             return size;
                           });
  os.close();
  code = os.error();
  os.clear_error();
  return {code.value(), os.tell()};
}

PYBIND11_MODULE(_C, m) {
  m.doc() = "Modules between Python and koila's compiler; private.";
  py::class_<InProcessOptions>(m, "Options")
      .def(py::init(&makeOptions), py::kw_only(), py::arg("name"),
           py::arg("method"), py::arg("loss"), py::arg("inputs"),
           py::arg("batch"), py::arg("batch_symbol"), py::arg("pipeline"),
           py::arg("device"), py::arg("from_host"));
  bindCustomOperators(m);
  bindAllocator(m);
  m.def("run_on_module", &runOnModule, py::arg("script"), py::arg("options"),
        py::arg("emit"));
  m.def(
      "follow_device_of_archive",
      [](const py::object &script, const std::string &path) {
        followDeviceOfArchive(getModule(script), path);
      },
      py::arg("script"), py::arg("path"));
  m.def("make_module", &makeModule, py::arg("name"), py::arg("unit"),
        py::arg("parameters"), py::arg("buffers"), py::arg("modules"));
  m.def("save_module", &saveModule, py::arg("script"), py::arg("path"));
  m.def(
      "run_on_archive",
      [](const std::string &path, const InProcessOptions &options,
         const std::string &output) {
        return toDict(runOnArchive(path, options, output));
      },
      py::arg("path"), py::arg("options"), py::arg("output"));
  m.def(
      "check_archive",
      [](const std::string &path) {
        KoilaTorchBuffer messages{};
        koilaTorchCheckArchive(path.c_str(), &messages);
        py::bytes text(messages.data ? messages.data : "", messages.size);
        koilaTorchFree(&messages);
        return text;
      },
      py::arg("path"));
  m.def(
      "parse_size",
      [](const std::string &text) {
        std::string problem;
        auto bytes = parseByteSize(text, problem);
        if (!bytes)
          throw py::value_error(problem);
        return *bytes;
      },
      py::arg("text"));
  py::class_<Guards>(m, "Guards")
      .def(py::init<const py::list &>(), py::arg("guards"))
      .def("hold", &Guards::hold);
  bindExtensions(m);
  m.def("count_cpu_memory", &countCPUMemory, py::arg("tensors"));
  m.def("cpu_memory", &getCPUMemory);
  m.def("thread_cpu_memory", &getThreadCPUMemory);
  m.def("restart_cpu_peak", &restartCPUPeak);
  m.def("take_cpu_lap", &takeCPULap);
  m.def("end_cpu_laps", &endCPULaps);
  m.def("start_event_log", &startEventLog, py::arg("of_all_threads"));
  m.def("stop_event_log", []() {
    std::vector<std::pair<uint64_t, int64_t>> list;
    for (const AllocatorEvent &event : stopEventLog())
      list.emplace_back(event.address, event.bytes);
    return list;
  });
  m.def("start_operator_log", &startOperatorLog);
  m.def("stop_operator_log", []() {
    auto [operators, peak] = stopOperatorLog();
    std::vector<std::tuple<std::string, int64_t, int64_t>> list;
    for (OperatorFigures &each : operators)
      list.emplace_back(std::move(each.name), each.live, each.peak);
    return std::make_pair(std::move(list), peak);
  });
  m.def(
      "check_output",
      [](const std::string &path) {
        std::string problem;
        auto kind = getOutputKind(path, problem);
        if (!kind)
          throw py::value_error(problem);
        if (*kind != OutputKind::TorchScript && !isDeviceOrPipe(path))
          throw py::value_error("'" + path +
                                "': MLIR is written by koila-opt; a "
                                "TorchScript file ends in .pt or .pth");
      },
      py::arg("path"));
  m.def("free_host_memory", []() {
    auto free = getFreeHostMemory();
    if (!free)
      throw std::runtime_error(llvm::toString(free.takeError()));
    return std::make_pair(free->bytes, free->source);
  });
  m.def(
      "find_card",
      [](const std::string &name, int64_t major, int64_t minor,
         int64_t multiprocessors) {
        return DeviceProfile::find(name, major, minor, multiprocessors).str();
      },
      py::arg("name"), py::arg("major"), py::arg("minor"),
      py::arg("multiprocessors"));
  m.def(
      "has_accumulation_hooks",
      [](const at::Tensor &tensor) {
        // No node that adds to `.grad` is made to be asked.
        auto node = torch::autograd::impl::try_get_grad_accumulator(tensor);
        return node &&
               (!node->pre_hooks().empty() || !node->post_hooks().empty());
      },
      py::arg("tensor"));
}
