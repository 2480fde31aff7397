//===- ProgramDevice.h - Where the tensors of a program are -----*- C++ -*-===//

#ifndef KOILA_TARGET_TORCHSCRIPT_IMPORT_PROGRAMDEVICE_H
#define KOILA_TARGET_TORCHSCRIPT_IMPORT_PROGRAMDEVICE_H

#include "mlir/IR/DialectInterface.h"
#include <c10/core/Device.h>

namespace koila::torchscript {

/// Added to the dialect where programs of one device are read, which may name
/// it, as traces do. What is made of them is for that device alone; without
/// this they name the CPU only.
class ProgramDevice : public mlir::DialectInterface::Base<ProgramDevice> {
public:
  ProgramDevice(mlir::Dialect *dialect, c10::Device device, bool fromHost)
      : Base(dialect), device(device), fromHost(fromHost) {}

  const c10::Device device;
  /// Whether arguments are on the CPU and are moved there (HostArguments.h).
  const bool fromHost;
};

} // namespace koila::torchscript

#endif // KOILA_TARGET_TORCHSCRIPT_IMPORT_PROGRAMDEVICE_H
