//===- KernelWork.cpp - Work of kernels -----------------------------------===//

#include "koila/Interfaces/KernelWork.h"

#include "koila/Interfaces/KernelWork.cpp.inc"
