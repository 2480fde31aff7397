//===- ImportArchive.cpp - Archives as MLIR modules -----------------------===//

#include "koila/Target/TorchScript/ImportArchive.h"
#include "mlir/Parser/Parser.h"

using namespace mlir;

OwningOpRef<ModuleOp>
koila::torchscript::importArchive(const KoilaTorchImportOptions &options,
                                  MLIRContext *context, std::string &messages) {
  KoilaTorchBuffer bytecode{}, texts{};
  int failed = koilaTorchImport(&options, &bytecode, &texts);
  messages.assign(texts.data ? texts.data : "", texts.size);
  OwningOpRef<ModuleOp> module;
  // The reader keeps references into the buffer only while it reads.
  if (!failed)
    module =
        parseSourceString<ModuleOp>(StringRef(bytecode.data, bytecode.size),
                                    ParserConfig(context), options.path);
  koilaTorchFree(&bytecode);
  koilaTorchFree(&texts);
  return module;
}
