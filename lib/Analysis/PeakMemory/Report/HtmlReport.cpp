//===- HtmlReport.cpp - The report as a page for a browser ----------------===//

#include "koila/Analysis/PeakMemory.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/raw_ostream.h"

using namespace koila;

/// ReportPage.html.
static constexpr llvm::StringLiteral kPage =
#include "ReportPage.inc"
    ;

void PeakReport::printPage(llvm::raw_ostream &os) const {
  auto [before, after] = kPage.split("KOILA_REPORT_JSON");
  os << before;
  // A name such as `</script>` must not end the element.
  for (char c : llvm::formatv("{0}", toJSON()).str())
    if (c == '<')
      os << "\\u003c";
    else
      os << c;
  os << after;
}
