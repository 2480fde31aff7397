// RUN: koila-opt %s --split-input-file --verify-diagnostics --koila-peak-memory -o /dev/null

module attributes {koila.target = #koila.target<device = "abacus">} {
// expected-error @below {{no kernel models are registered for device=abacus; there are those of cpu, cuda, and of the cards a100-sxm4-40gb,}}
func.func @unknown() {
  return
}
}

// -----

// expected-error @below {{a target needs a device}}
module attributes {koila.target = #koila.target<device = "">} {
}

// -----

// expected-error @below {{a target of -1 threads; there is at least one}}
module attributes {koila.target = #koila.target<device = "cpu", threads = -1>} {
}

// -----

// expected-error @below {{a target has caches of 0 bytes (unknown) or more}}
module attributes {koila.target = #koila.target<device = "cpu", l1_bytes = -1>} {
}

// -----

// expected-error @below {{'koila.target' is a #koila.target on a module}}
module attributes {koila.target = 3 : i64} {
}

// -----

module attributes {dlti.target_system_spec = #dlti.target_system_spec<
    "CPU" = #dlti.target_device_spec<"koila.threads" = "two">>} {
// expected-error @below {{'koila.threads' of the DLTI spec of 'CPU' is no integer}}
func.func @threads() {
  return
}
}

// -----

module attributes {dlti.target_system_spec = #dlti.target_system_spec<
    "CPU" = #dlti.target_device_spec<"koila.isa" = 2 : ui32>>} {
// expected-error @below {{'koila.isa' of the DLTI spec of 'CPU' is no string}}
func.func @isa() {
  return
}
}
