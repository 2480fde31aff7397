//===- Options.cpp - Command line of koila-run ----------------------------===//
//
// Read by hand: llvm::cl would list every option of MLIR's library next to the
// dozen of this tool.
//
//===----------------------------------------------------------------------===//

#include "Options.h"
#include "koila/Device/CpuIsa.h"
#include "koila/Extension/Loading.h"
#include "koila/Support/ByteSize.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

using namespace koila;
using namespace koila::run;
using llvm::StringRef;

const char *const koila::run::kHelp =
    R"(koila-run: run a TorchScript program on real tensors, measure its peak of
memory and its time, and compare it with another.

  koila-run A.pt [B.pt] [options]
  koila-run --calibrate TABLE.json [options]
  koila-run --replay SNAPSHOT.pickle [options]

Next to the measured peak stands the one that koila predicts. With B.pt both run
on the same inputs and B's results are compared with A's: in float64, and in the
given dtype against the float64 result. A comparison that zeros or another
sample's results would also have passed counts as a failure.

  --input=SPEC        an argument, in order or by name; repeatable
                        x=float32[B,3,224,224]   ids=int64[B,128]{0:30521}
                        nodes=float32[4*B,16]    mask=none    scale=0.5
                      a traced file with recorded shapes needs none
  --batch B=64        the value of a symbol; repeatable
  --batch-symbol B    which symbol is the batch (default: B, else the only one)
  --method NAME       the method to call (default: forward; also --function)
  --mode MODE         inference (default), forward-with-grad, or train: forward,
                      loss and backward, by the file's own train_step where it
                      has one; gradients are compared
  --loss NAME         of mode train, if the method does not return it, as
                      cross_entropy(label_smoothing=0.1); a further --input is
                      its target
  --repeat N          timed calls, of which the median is shown (default: 5)
  --seed S            seed of the made-up values (default: 0)
  --threads N         threads (default: OMP_NUM_THREADS, else the cores)
  --device NAME       cpu (default), or where LibTorch has one cuda, cuda:1 or
                      another accelerator: weights and inputs go there, and what
                      is measured is what its allocator hands out and reserves
  --isa NAME          predict for another instruction set, by oneDNN's name
  --workspaces FILE   a table that --calibrate wrote: where koila's figures are
                      exact; its rows go before koila's own
  --calibrate FILE    measure calls of each family of operators on this machine,
                      compare them with koila's rules, and write such a table
  --calls N           programs for each of its rows, each run at four batches
                      (default: 24)
  --replay FILE       a snapshot of PyTorch's allocator for CUDA, as
                      torch.cuda.memory._dump_snapshot() writes it after
                      _record_memory_history(): its requests are made again of
                      koila's simulated allocator, and each segment, place of a
                      block and free is compared. Needs no GPU. Prints the peaks
                      and the first difference
  --device N          of which device, by its number (default: 0)
  --replay-rules V    which of equal free blocks goes first: 2.13 (default), that
                      of the oldest segment; 2.11, for PyTorch up to 2.11, that
                      of the lowest address
  --device-memory SIZE
                      the memory of the device, as 80GiB: expandable segments
                      reserve addresses by it, and a snapshot does not say
  --memory-limit SIZE what set_per_process_memory_fraction() allowed, as 8GiB;
                      a snapshot does not say, and garbage collection needs it
  --allow-setstate    load archives that run code at load (__setstate__)
  --archive-timeout N give up when LibTorch is busy reading an archive for more
                      than N seconds (default: 600; 0: no limit)
  --load-library FILE a library that registers custom operators; repeatable
  --load-dialect-plugin FILE
                      an extension of koila, with rules for such operators;
                      repeatable
  --json              a report for programs on stdout
  --help              this text
  --version           alone: koila's version, LLVM's, and LibTorch's

Exit code: 0 done (and equal), 1 unequal, vacuous, different from the recording,
or an error.

Examples:
  koila-run resnet18.pt --input='x=float32[B,3,224,224]' --batch B=8
  koila-run model.pt tiled.pt --input='float32[B,3,64,64]' --batch B=64 --json
  koila-run --calibrate here.json --threads 32
  koila-run --replay snapshot.pickle --replay-rules 2.11
)";

namespace {
class OptionParser {
public:
  OptionParser(int argc, char **argv) : arguments(argv + 1, argv + argc) {}

  Options parse();

private:
  void parseOption(StringRef name, std::optional<StringRef> inlineValue);
  int64_t parseNumber(StringRef name, StringRef text, int64_t least);
  int64_t parseBytes(StringRef name, StringRef text);
  bool parseReplayOption(StringRef name, llvm::function_ref<StringRef()> value);

  std::vector<StringRef> arguments;
  size_t next = 0;
  Options options;
  /// One that belongs to --replay.
  std::string replayOption;
};
} // namespace

int64_t OptionParser::parseNumber(StringRef name, StringRef text,
                                  int64_t least) {
  int64_t value;
  if (text.getAsInteger(10, value) || value < least)
    throw UserError(("--" + name + " '" + text +
                     "': expected a number of at "
                     "least " +
                     llvm::Twine(least))
                        .str());
  return value;
}

int64_t OptionParser::parseBytes(StringRef name, StringRef text) {
  std::string error;
  std::optional<int64_t> bytes = parseByteSize(text, error);
  if (!bytes)
    throw UserError(("--" + name + ": " + error).str());
  return *bytes;
}

/// Whether it is an option of --replay. A device has a number there, and a name
/// where a program runs.
bool OptionParser::parseReplayOption(StringRef name,
                                     llvm::function_ref<StringRef()> value) {
  using EqualBlocks = CachingAllocatorOptions::EqualBlocks;
  ReplayOptions &replay = options.replayOptions;
  if (name == "device") {
    StringRef device = value();
    if (device.empty() || !llvm::isDigit(device.front())) {
      options.device = device.str();
      return true;
    }
    replay.device = parseNumber(name, device, 0);
  } else if (name == "replay-rules") {
    StringRef version = value();
    if (version != "2.11" && version != "2.13")
      throw UserError(("--replay-rules '" + version +
                       "' is unknown; use 2.13, or 2.11 for recordings of "
                       "PyTorch up to 2.11")
                          .str());
    replay.equalBlocks = version == "2.11" ? EqualBlocks::ByAddress
                                           : EqualBlocks::BySegmentBirth;
  } else if (name == "memory-limit") {
    replay.memoryLimit = parseBytes(name, value());
  } else if (name == "device-memory") {
    replay.deviceMemory =
        std::min(parseBytes(name, value()), ReplayOptions::kMostDeviceMemory);
  } else {
    return false;
  }
  replayOption = name.str();
  return true;
}

void OptionParser::parseOption(StringRef name,
                               std::optional<StringRef> inlineValue) {
  auto flag = [&]() {
    if (inlineValue)
      throw UserError(("--" + name + " takes no value").str());
  };
  auto value = [&]() -> StringRef {
    if (inlineValue)
      return *inlineValue;
    if (next == arguments.size())
      throw UserError(("--" + name + " needs a value; see --help").str());
    return arguments[next++];
  };
  std::string error;
  if (name == "help" || name == "h") {
    flag();
    options.help = true;
  } else if (name == "json") {
    flag();
    options.json = true;
  } else if (name == "allow-setstate") {
    flag();
    options.archives.allowSetState = true;
  } else if (name == "archive-timeout") {
    options.archives.timeoutSeconds =
        static_cast<unsigned>(parseNumber(name, value(), 0));
  } else if (name == "load-library") {
    options.archives.libraries.push_back(value().str());
  } else if (name == "load-dialect-plugin") {
    if (llvm::Error problem = loadExtension(value(), PluginKind::AnyDialect))
      throw UserError("--load-dialect-plugin: " +
                      llvm::toString(std::move(problem)));
  } else if (name == "input") {
    if (!options.call.addInput(value(), error))
      throw UserError("--input: " + error);
  } else if (name == "batch") {
    if (!options.call.addBatch(value(), error))
      throw UserError("--batch: " + error);
  } else if (name == "batch-symbol") {
    options.call.batchSymbol = value().str();
  } else if (name == "method" || name == "function") {
    options.method = value().str();
  } else if (name == "mode") {
    StringRef mode = value();
    if (mode != "inference" && mode != "forward-with-grad" && mode != "train")
      throw UserError(("--mode '" + mode +
                       "' is unknown; use inference, forward-with-grad or "
                       "train")
                          .str());
    options.gradMode = mode != "inference";
    options.trains = mode == "train";
  } else if (name == "loss") {
    options.loss = value().str();
  } else if (name == "repeat") {
    options.repeat = parseNumber(name, value(), 1);
  } else if (name == "seed") {
    options.seed = static_cast<uint64_t>(parseNumber(name, value(), 0));
  } else if (name == "threads") {
    options.threads = parseNumber(name, value(), 1);
  } else if (name == "isa") {
    options.isa = value().str();
  } else if (name == "workspaces") {
    auto table = WorkspaceTable::load(value());
    if (!table)
      throw UserError("--workspaces: " + llvm::toString(table.takeError()));
    options.workspaces =
        std::make_shared<const WorkspaceTable>(std::move(*table));
  } else if (name == "calibrate") {
    options.calibrate = value().str();
    if (options.calibrate.empty())
      throw UserError("--calibrate needs the name of a file to write");
  } else if (name == "replay") {
    options.replay = value().str();
    if (options.replay.empty())
      throw UserError("--replay needs the name of a snapshot");
  } else if (parseReplayOption(name, value)) {
    return;
  } else if (name == "calls") {
    options.calls = parseNumber(name, value(), 1);
  } else {
    throw UserError(
        ("unknown option '--" + name + "'; see koila-run --help").str());
  }
}

Options OptionParser::parse() {
  bool onlyPaths = false;
  while (next < arguments.size()) {
    StringRef argument = arguments[next++];
    if (!onlyPaths && argument == "--") {
      onlyPaths = true;
    } else if (!onlyPaths && argument.size() > 1 && argument.starts_with("-")) {
      auto [name, value] =
          argument.drop_while([](char c) { return c == '-'; }).split('=');
      bool hasValue = argument.contains('=');
      parseOption(name, hasValue ? std::optional(value) : std::nullopt);
    } else {
      options.paths.push_back(argument.str());
    }
  }
  if (options.help)
    return options;
  if (options.threads == 0)
    options.threads = getDefaultThreads();
  if (options.isa.empty())
    options.isa = getCpuIsa();
  if (options.device != "cpu") {
    if (!options.replay.empty())
      throw UserError("--replay needs the number of a device, not '" +
                      options.device + "'");
    if (!options.calibrate.empty())
      throw UserError("--calibrate measures the CPU; leave out --device");
    if (options.paths.size() > 1)
      throw UserError("programs are compared on the CPU; leave out --device, "
                      "or measure one alone");
  }
  if (!options.replay.empty()) {
    if (!options.paths.empty())
      throw UserError("--replay runs no program; leave out '" +
                      options.paths.front() + "'");
    if (!options.calibrate.empty())
      throw UserError("--replay and --calibrate exclude each other");
    return options;
  }
  if (!replayOption.empty())
    throw UserError("--" + replayOption + " belongs to --replay SNAPSHOT");
  if (!options.calibrate.empty()) {
    if (!options.paths.empty())
      throw UserError("--calibrate runs no program; leave out '" +
                      options.paths.front() + "'");
    return options;
  }
  if (!options.loss.empty() && !options.trains)
    throw UserError("--loss belongs to --mode train");
  if (options.paths.empty())
    throw UserError("no file to run; write koila-run A.pt [B.pt], or see "
                    "--help");
  if (options.paths.size() > 2)
    throw UserError("more than two files: '" + options.paths[2] +
                    "'; koila-run compares one program with one other");
  return options;
}

Options koila::run::parseOptions(int argc, char **argv) {
  return OptionParser(argc, argv).parse();
}
