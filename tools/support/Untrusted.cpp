//===- Untrusted.cpp - Untrusted input -------------------------------===//

#include "Untrusted.h"
#include <dlfcn.h>

std::string koila::ArchiveOptions::openLibraries() const {
  for (const std::string &library : libraries)
    if (!dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL))
      return "--load-library: " + std::string(dlerror());
  return {};
}
