/*===- TorchScript.h - TorchScript files in and out ---------------*- C -*-===*\
|*                                                                            *|
|* The boundary of libKoilaTorchScript. It names no type of LibTorch or MLIR, *|
|* so that a program can open the library with dlopen when an archive comes   *|
|* in or goes out, and pays for LibTorch only then. Programs travel as MLIR   *|
|* bytecode. No exception leaves a function.                                  *|
|*                                                                            *|
\*===----------------------------------------------------------------------===*/

#ifndef KOILA_TARGET_TORCHSCRIPT_TORCHSCRIPT_H
#define KOILA_TARGET_TORCHSCRIPT_TORCHSCRIPT_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Raised whenever a struct or function here changes its meaning. */
#define KOILA_TORCH_ABI_VERSION 4

#define KOILA_TORCH_EXPORT __attribute__((visibility("default")))

/** Bytes owned by the library; give them back with koilaTorchFree. A
   terminating zero follows the `size` bytes. */
typedef struct KoilaTorchBuffer {
  char *data;
  size_t size;
} KoilaTorchBuffer;

/** A program that was loaded, for emission to go on with; give it to
    koilaTorchEmit or to koilaTorchRelease. */
typedef struct KoilaTorchProgram KoilaTorchProgram;

typedef struct KoilaTorchImportOptions {
  /** The archive. */
  const char *path;
  /** The method; null means `forward`. */
  const char *function;
  /** Not null: reads `train_step`, which runs the method, the loss and the
      backward pass. A loss by its name in torch.nn.functional and arguments, as
      `cross_entropy(label_smoothing=0.1)`, takes a further argument `target`;
      empty, the method returns the loss, or a tuple of it and further tensors.
   */
  const char *loss;
  /** With `loss`: arguments whose gradients the step returns as well, by name
     or position (from 0), with commas between; null: none. */
  const char *gradients;
  /** Not null: takes the program, with its weights, so that emission need not
      load it again; null if emission has to. */
  KoilaTorchProgram **program;
} KoilaTorchImportOptions;

typedef struct KoilaTorchEmitOptions {
  /** The module to write, as MLIR bytecode. */
  const char *bytecode;
  size_t bytecodeSize;
  /** Takes weights and module tree from this archive instead of the one that
      the module was imported from; may be null. */
  const char *weightsPath;
  const char *outputPath;
  /** Stored in the archive as `koila/report.json`; may be null. */
  const char *reportJson;
  /** What import kept of the archive, used up by this; may be null. */
  KoilaTorchProgram *program;
} KoilaTorchEmitOptions;

/** KOILA_TORCH_ABI_VERSION of the library. */
KOILA_TORCH_EXPORT int koilaTorchAbiVersion(void);

/** The version of LibTorch, for example "2.13.0". */
KOILA_TORCH_EXPORT const char *koilaTorchVersion(void);

KOILA_TORCH_EXPORT void koilaTorchFree(KoilaTorchBuffer *buffer);

/** Does nothing for null. */
KOILA_TORCH_EXPORT void koilaTorchRelease(KoilaTorchProgram *program);

/** The functions below return 0, or 1 after an error. `messages` is one JSON
    object per line: {"severity": "error"|"warning"|"note", "message": ...,
    "file": ..., "line": ..., "column": ...}; the place is absent if unknown. */

/** Reads a method of an archive into `bytecode`. */
KOILA_TORCH_EXPORT int koilaTorchImport(const KoilaTorchImportOptions *options,
                                        KoilaTorchBuffer *bytecode,
                                        KoilaTorchBuffer *messages);

/** Writes an archive, which is read back and compared before it takes the
    place of an earlier file. */
KOILA_TORCH_EXPORT int koilaTorchEmit(const KoilaTorchEmitOptions *options,
                                      KoilaTorchBuffer *messages);

/** Compares the schema of every operation with the operator that LibTorch
    registers; each difference is an error message. An operation of an extension
    whose library of operators is not loaded is a warning. */
KOILA_TORCH_EXPORT int koilaTorchCheckSchemas(KoilaTorchBuffer *messages);

/** Runs an operator on shapes by LibTorch's Meta kernels. `request` and
    `answer` are JSON, as MetaKernelShapeSource in
   koila/Analysis/MetaKernelShapes.h says. Returns 1, with an empty answer, if
   there is no such kernel or it refuses the arguments. */
KOILA_TORCH_EXPORT int koilaTorchRunMeta(const char *request,
                                         KoilaTorchBuffer *answer);

/** Whether archives that run `__setstate__` when they are loaded are loaded.
    Holds for the process. */
KOILA_TORCH_EXPORT void koilaTorchAllowSetState(int allow);

/** Refuses archives as koilaTorchImport would, without loading them. */
KOILA_TORCH_EXPORT int koilaTorchCheckArchive(const char *path,
                                              KoilaTorchBuffer *messages);

#ifdef __cplusplus
}
#endif

#endif /* KOILA_TARGET_TORCHSCRIPT_TORCHSCRIPT_H */
