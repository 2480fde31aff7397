//===- DiagnosticJSON.cpp - Errors on their way out -----------------------===//

#include "DiagnosticJSON.h"
#include "Locations.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/raw_ostream.h"

using namespace koila::torchscript;

void Messages::add(llvm::json::Object object,
                   std::optional<mlir::Location> location) {
  if (location) {
    if (mlir::FileLineColLoc place = getUserPlace(*location)) {
      object["file"] = llvm::json::fixUTF8(place.getFilename().strref());
      object["line"] = static_cast<int64_t>(place.getLine());
      object["column"] = static_cast<int64_t>(place.getColumn());
    }
  }
  llvm::raw_string_ostream os(text);
  os << llvm::json::Value(std::move(object)) << '\n';
}

void Messages::add(llvm::StringRef severity, llvm::StringRef message,
                   std::optional<mlir::Location> location) {
  anyError |= severity == "error";
  add(llvm::json::Object{{"severity", severity},
                         {"message", llvm::json::fixUTF8(message)}},
      location);
}

void Messages::addRemark(llvm::StringRef message, mlir::Location location,
                         llvm::StringRef kind, llvm::StringRef name,
                         llvm::json::Object arguments) {
  add(llvm::json::Object{{"severity", "remark"},
                         {"message", llvm::json::fixUTF8(message)},
                         {"kind", kind},
                         {"name", name},
                         {"arguments", std::move(arguments)}},
      location);
}

void Messages::append(llvm::StringRef lines) {
  anyError |= lines.contains("\"severity\":\"error\"");
  text += lines;
}

void Messages::add(const Refusal &refusal) {
  add("error", refusal.message, refusal.location);
  if (!refusal.note.empty())
    add("note", refusal.note, refusal.noteLocation);
}

void Messages::addDiagnostic(mlir::Diagnostic &diagnostic) {
  llvm::StringRef severity = "note";
  if (diagnostic.getSeverity() == mlir::DiagnosticSeverity::Error)
    severity = "error";
  else if (diagnostic.getSeverity() == mlir::DiagnosticSeverity::Warning)
    severity = "warning";
  else if (diagnostic.getSeverity() == mlir::DiagnosticSeverity::Remark)
    severity = "remark";
  add(severity, diagnostic.str(), diagnostic.getLocation());
  for (mlir::Diagnostic &note : diagnostic.getNotes())
    addDiagnostic(note);
}
