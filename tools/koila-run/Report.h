//===- Report.h - What koila-run prints -------------------------*- C++ -*-===//

#ifndef KOILA_TOOLS_KOILARUN_REPORT_H
#define KOILA_TOOLS_KOILARUN_REPORT_H

#include "Compare.h"
#include "Options.h"
#include "Predict.h"
#include "llvm/Support/raw_ostream.h"

namespace koila::run {

struct ProgramResult {
  std::string path;
  Prediction prediction;
  MeasuredPeak measured;
  double milliseconds = 0.0;
  std::vector<std::string> warnings;
};

struct RunReport {
  const Options &options;
  std::vector<SymbolValue> symbols;
  SymbolValue batch;
  std::vector<ProgramResult> programs;
  std::optional<Comparison> comparison;
};

/// For people.
void printText(llvm::raw_ostream &os, const RunReport &report);
/// Schema 1 of docs/user/Reports.md, koila-run.
void printJSON(llvm::raw_ostream &os, const RunReport &report);

} // namespace koila::run

#endif // KOILA_TOOLS_KOILARUN_REPORT_H
