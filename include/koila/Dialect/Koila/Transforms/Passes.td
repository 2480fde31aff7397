//===- Passes.td - Passes on the koila dialect -------------*- tablegen -*-===//

#ifndef KOILA_DIALECT_KOILA_TRANSFORMS_PASSES_TD
#define KOILA_DIALECT_KOILA_TRANSFORMS_PASSES_TD

include "mlir/Pass/PassBase.td"

defvar koilaDialects = [
  "::koila::KoilaDialect", "::mlir::arith::ArithDialect",
  "::mlir::func::FuncDialect", "::mlir::scf::SCFDialect",
  "::mlir::tensor::TensorDialect"];

/// `::koila::AnalysisPass` is private to the passes.
class KoilaAnalysisPass<string name> : PassBase<name, "::koila::AnalysisPass"> {
  let dependentDialects = koilaDialects;
  list<Option> analysisOptions = [
    Option<"mode", "mode", "std::string", "\"inference\"",
           "what is run: inference; forward-with-grad, where autograd keeps "
           "tensors (koila-peak-memory only); or train, a training step with "
           "its backward pass">,
    Option<"allocator", "allocator", "std::string", "\"exact\"",
           "what a byte is: exact; cuda for the caching allocator of a GPU; or "
           "auto (koila-peak-memory only): cuda of a device of CUDA, where all "
           "sizes are known and no budget is given, else exact">,
    Option<"device", "device", "std::string", "\"\"",
           "whose kernels run: a target that has kernel models, as cpu, cuda (a "
           "GPU of which nothing more is known) or the name of a card, as "
           "a100-sxm4-40gb; empty: that of koila.target of the module, else cpu">,
    Option<"threads", "threads", "int64_t", "0",
           "threads of the run; 0: those of koila.target or the DLTI spec of the "
           "module, else OMP_NUM_THREADS, else the cores">,
    Option<"isa", "isa", "std::string", "\"\"",
           "oneDNN's name of the instruction set, for example "
           "avx512_core_bf16; empty: that of the module, else this machine's">,
    Option<"torch", "torch", "std::string", "\"\"",
           "version of the PyTorch that runs the program; empty: the one that "
           "koila was built with">,
    Option<"workspaces", "workspaces", "std::string", "\"\"",
           "a table of where the figures of operators hold, as `koila-run "
           "--calibrate` writes one; its rows go before those of koila">,
    Option<"function", "function", "std::string", "\"\"",
           "the function; empty: the only public one">,
    Option<"loss", "loss", "std::string", "\"\"",
           "of mode=train, by its name in torch.nn.functional and arguments: "
           "cross_entropy(label_smoothing=0.1); a further --input is its "
           "target. Empty: the program returns the loss, or a tuple of it and "
           "further tensors">,
    Option<"optimizer", "optimizer", "std::string", "\"\"",
           "of mode=train: whose step() follows the backward pass, with the "
           "arguments of its class in torch.optim, as "
           "adamw(lr=1e-3,foreach=true): sgd, adam, adamw, rmsprop, adagrad or "
           "adafactor. Its state is there like the gradients (see grads)">,
    Option<"grads", "grads", "std::string", "\"present\"",
           "of mode=train: whether weights have a .grad when the step starts: "
           "present, as from the second step on, and not counted; or absent, "
           "as at the first one or after zero_grad(set_to_none=True)">];
}

def InferShapesPass : Pass<"koila-infer-shapes", "::mlir::ModuleOp"> {
  let summary = "refine types and dims from those of the arguments";
  let description = [{
    Runs the shape rule of every operation over symbols and writes the result
    into the types: static extents where known, `?` where they depend on a
    symbol. Facts about arguments which the program does not check itself
    become `koila.assume` operations at entry. Operands that PyTorch would
    refuse are an error at the operation.

    ```mlir
    // Before:
    %0 = koila.relu %x : (tensor<?x64xf32>) -> tensor<*x!koila.any>
    // After:
    %0 = koila.relu %x : (tensor<?x64xf32>) -> tensor<?x64xf32>
    ```
  }];
  let dependentDialects = koilaDialects;
}

def PrintFactsPass : Pass<"koila-print-facts", "::mlir::ModuleOp"> {
  let summary = "print what the analyses know of each value";
  let description = [{
    One JSON object per operation, each in a line of its own: the operator, the
    place, and for each result its element type, its dims and strides as
    expressions, where the batch is, and whether its storage is its own (`new`),
    another value's (`shared`) or the caller's (`external`). The program is
    unchanged.
  }];
  let options = [
    Option<"function", "function", "std::string", "\"\"",
           "the function; empty: the only public one">,
    Option<"output", "output", "std::string", "\"\"",
           "file for the lines; empty: stderr">];
  let dependentDialects = koilaDialects;
}

def VerifyStagePass : Pass<"koila-verify-stage", "::mlir::ModuleOp"> {
  let summary = "check what a stage of the pipeline promises";
  let description = [{
    `imported`: arguments have names, weights are declared. `inferred`: no
    unknown rank or element type outside opaque operators, and every argument
    dim has an expression. `tiled`: a tiled function has its assumptions and
    record. `emittable`: only operations that emission can write. An error
    names the operation and the pass that should have established the form.
  }];
  let options = [
    Option<"stage", "stage", "std::string", "\"inferred\"",
           "imported, inferred, tiled or emittable">];
  let dependentDialects = koilaDialects;
}

def PeakMemoryPass : KoilaAnalysisPass<"koila-peak-memory"> {
  let summary = "report the peak of live memory and where it happens";
  let description = [{
    A report only; the program is unchanged. Without `output` it goes to
    stderr. With `budget`, a peak above it is an error.
  }];
  let options = analysisOptions # [
    Option<"format", "format", "std::string", "\"text\"", "text, json or html; events: the allocations and frees in their order, as JSON; attribute: JSON as koila.report of the module">,
    Option<"samples", "samples", "std::string", "\"\"",
           "of format=events: the batches of which each gets its list, as 8,16; "
           "empty: that of the module">,
    Option<"output", "output", "std::string", "\"\"",
           "file for the report; empty: stderr">,
    Option<"budget", "budget", "std::string", "\"\"",
           "fail if the peak exceeds these bytes, for example 64MiB, or what is "
           "free now (auto)">,
    Option<"floor", "floor", "bool", "true",
           "also the least peak that tiles have, for which the program is tiled "
           "on trial">,
    Option<"batches", "batches", "int64_t", "64",
           "give the peak as pieces of polynomials of the batch, exact at "
           "every batch from 1 to this one; 0: leave them out">,
    Option<"frames", "frames", "bool", "false",
           "give each entry of the timeline in JSON `frames`: the lines of all "
           "functions that it runs in, innermost first">,
    Option<"snapshot", "snapshot", "std::string", "\"\"",
           "file for what the caching allocator of a GPU does meanwhile, as "
           "torch.cuda.memory._dump_snapshot() writes it; empty: none">];
}

def TileBatchPass : KoilaAnalysisPass<"koila-tile-batch"> {
  let summary = "run the batch in power-of-two tiles";
  let description = [{
    Rewrites the function so that the batch runs in loops over tiles: full
    tiles first, then the binary decomposition of what is left. Inputs are
    sliced as views, outputs written into one buffer. Refuses, naming the
    operation and the reason, where samples are mixed. With `budget`, the largest
    power of two whose re-analysed program fits for every batch up to the
    given one is taken; if none does, the error lists what is live at the peak
    and the smallest budget that would work. Of several phases between
    operations that run whole, those that need less then get larger tiles.
  }];
  let options = analysisOptions # [
    Option<"tile", "tile", "int64_t", "0",
           "samples per tile, a power of two; or give budget">,
    Option<"budget", "budget", "std::string", "\"\"",
           "bytes the call may hold at its peak, for example 64MiB, or auto: "
           "what the host, the process's control group and its limits leave "
           "now; the largest tile that fits is taken">,
    Option<"guard", "guard", "std::string", "\"warn\"",
           "when the program meets inputs it was not compiled for: warn and "
           "run the untiled program, or raise">,
    Option<"grad", "grad", "std::string", "\"guard\"",
           "guard: with grad mode on, warn and run the untiled program (off "
           "is not supported yet)">,
    Option<"random", "random", "std::string", "\"refuse\"",
           "random operators: refuse them; full-batch-masks: draw for the "
           "whole batch, before the loops where shapes suffice, exactly what "
           "the untiled program draws on the device that it is compiled for; "
           "per-tile: draw anew in each tile, equal in distribution only">,
    Option<"batchnorm", "batchnorm", "std::string", "\"exact\"",
           "batch normalisation in training mode: exact, with the statistics of "
           "the whole batch, in a training step with recompute=auto; refuse it; "
           "per-tile: each tile is normalised by itself, which "
           "gives other results, and running statistics are updated once a "
           "tile">,
    Option<"recompute", "recompute", "std::string", "\"auto\"",
           "training steps in which samples are mixed on the way to the loss, "
           "or of which the smallest tile takes too much: auto: run the backward "
           "pass in segments between what mixes samples, and that of a tile in "
           "parts, which make again what of the forward pass the budget does "
           "not let them keep; never: refuse them">,
    Option<"plans", "plans", "int64_t", "1",
           "with budget: the most plans that the program has, 4 at most: that of "
           "the budget, and where the plan changes with the budget those of "
           "smaller and larger ones, each of which is searched for">,
    Option<"costs", "costs", "std::string", "\"\"",
           "a table that `koila bench --calibrate` wrote, of times by which what "
           "runs again is chosen; empty: those that koila comes with">];
}

#endif // KOILA_DIALECT_KOILA_TRANSFORMS_PASSES_TD
