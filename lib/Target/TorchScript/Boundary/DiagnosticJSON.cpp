//===- DiagnosticJSON.cpp - Errors on their way out -----------------------===//

#include "DiagnosticJSON.h"
#include "Locations.h"
#include "mlir/IR/BuiltinAttributes.h"
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
  anyError |= severity == "error";
  llvm::json::Object object{{"severity", severity},
                            {"message", llvm::json::fixUTF8(diagnostic.str())}};
  // Numbers and flags that a pass gives with its text.
  for (const mlir::DiagnosticArgument &argument : diagnostic.getMetadata()) {
    if (argument.getKind() !=
        mlir::DiagnosticArgument::DiagnosticArgumentKind::Attribute)
      continue;
    auto fields =
        llvm::dyn_cast<mlir::DictionaryAttr>(argument.getAsAttribute());
    if (!fields)
      continue;
    for (mlir::NamedAttribute field : fields)
      if (auto flag = llvm::dyn_cast<mlir::BoolAttr>(field.getValue()))
        object[field.getName().strref()] = flag.getValue();
      else if (auto number =
                   llvm::dyn_cast<mlir::IntegerAttr>(field.getValue()))
        object[field.getName().strref()] = number.getInt();
  }
  add(std::move(object), diagnostic.getLocation());
  for (mlir::Diagnostic &note : diagnostic.getNotes())
    addDiagnostic(note);
}
