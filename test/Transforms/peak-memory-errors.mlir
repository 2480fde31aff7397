// RUN: not koila-opt %s --koila-peak-memory="function=b mode=train" 2>&1 | FileCheck %s --check-prefix=MODE
// RUN: not koila-opt %s --koila-peak-memory=mode=other 2>&1 | FileCheck %s --check-prefix=OTHER
// RUN: not koila-opt %s --koila-peak-memory=allocator=cuda 2>&1 | FileCheck %s --check-prefix=ALLOCATOR
// RUN: not koila-opt %s --koila-peak-memory=device=cuda:0 2>&1 | FileCheck %s --check-prefix=DEVICE
// RUN: not koila-opt %s --koila-peak-memory="function=b device=cuda allocator=cuda budget=1GiB" 2>&1 | FileCheck %s --check-prefix=CARD-BUDGET
// RUN: env CUDA_VISIBLE_DEVICES= not koila-opt %s --koila-peak-memory="function=b device=cuda budget=auto" 2>&1 | FileCheck %s --check-prefix=CARD-AUTO
// RUN: not koila-opt %s --koila-peak-memory="function=a device=cuda allocator=cuda" 2>&1 | FileCheck %s --check-prefix=CARD-SYMBOL
// RUN: not koila-opt %s --koila-peak-memory="function=b device=cuda snapshot=%t.pickle" 2>&1 | FileCheck %s --check-prefix=SNAPSHOT
// RUN: not koila-opt %s --koila-peak-memory="function=b allocator=auto snapshot=%t.pickle" 2>&1 | FileCheck %s --check-prefix=SNAPSHOT-CPU
// RUN: not koila-opt %s --koila-peak-memory="function=b device=cuda allocator=auto budget=1GiB snapshot=%t.pickle" 2>&1 | FileCheck %s --check-prefix=SNAPSHOT-BUDGET
// RUN: not koila-opt %s --koila-peak-memory="function=a device=cuda allocator=auto snapshot=%t.pickle" 2>&1 | FileCheck %s --check-prefix=SNAPSHOT-SYMBOL
// RUN: not koila-opt %s --koila-peak-memory="function=b device=cuda allocator=cuda snapshot=%t.absent/pickle" 2>&1 | FileCheck %s --check-prefix=OUTPUT
// RUN: not koila-opt %s --koila-peak-memory=threads=-1 2>&1 | FileCheck %s --check-prefix=THREADS
// RUN: not koila-opt %s --koila-peak-memory=format=xml 2>&1 | FileCheck %s --check-prefix=FORMAT
// RUN: not koila-opt %s --koila-peak-memory=loss=mse 2>&1 | FileCheck %s --check-prefix=LOSS
// RUN: not koila-opt %s --koila-peak-memory=grads=absent 2>&1 | FileCheck %s --check-prefix=GRADS
// RUN: not koila-opt %s --koila-peak-memory=optimizer=sgd 2>&1 | FileCheck %s --check-prefix=OPTIMIZER
// RUN: not koila-opt %s --koila-peak-memory=function=absent 2>&1 | FileCheck %s --check-prefix=ABSENT
// RUN: not koila-opt %s --koila-peak-memory=function=declared 2>&1 | FileCheck %s --check-prefix=DECLARED
// RUN: not koila-opt %s --koila-peak-memory 2>&1 | FileCheck %s --check-prefix=SEVERAL
// RUN: not koila-opt %s --koila-peak-memory="function=a budget=1GiB" 2>&1 | FileCheck %s --check-prefix=SYMBOL
// RUN: not koila-opt %s --koila-peak-memory="function=b budget=31" 2>&1 | FileCheck %s --check-prefix=BUDGET
// RUN: not koila-opt %s --koila-peak-memory="function=b budget=many" 2>&1 | FileCheck %s --check-prefix=SIZE
// RUN: not koila-opt %s --koila-peak-memory="function=b output=%t.absent/report" 2>&1 | FileCheck %s --check-prefix=OUTPUT

// MODE: error: mode=train needs a training step, and there is no koila.backward
// OTHER: error: unknown mode=other; use mode=inference
// ALLOCATOR: error: allocator=cuda belongs to a device of CUDA; use device=cuda, or the name of a card
// CARD-BUDGET: error: allocator=cuda with a budget is not supported yet; leave the budget out
// CARD-AUTO: error: budget=auto: {{.*}}; give the bytes that are free, for example budget=6GiB
// CARD-SYMBOL: error: allocator=cuda needs a value for symbol 'B' (--batch B=N)
// SNAPSHOT: error: a snapshot is what an allocator does; use allocator=cuda
// SNAPSHOT-CPU: error: a snapshot belongs to a device of CUDA; use device=cuda, or the name of a card
// SNAPSHOT-BUDGET: error: a snapshot with a budget is not supported yet; leave the budget out
// SNAPSHOT-SYMBOL: error: a snapshot needs a value for symbol 'B' (--batch B=N)
// DEVICE: error: device=cuda:0 is not supported yet; use device=cpu or device=cuda
// THREADS: error: threads=-1 is negative
// FORMAT: error: unknown format=xml; use format=text or format=json
// LOSS: error: loss=mse belongs to mode=train; leave it out, or train
// GRADS: error: grads=absent belongs to mode=train; leave it out, or train
// OPTIMIZER: error: optimizer=sgd belongs to mode=train; leave it out, or train
// ABSENT: error: no function 'absent'; there is 'a', 'b'
// DECLARED: error: no function 'declared'; there is 'a', 'b'
// SEVERAL: error: several functions: say which by function=NAME ('a', 'b')
// SYMBOL: error: budget needs a value for symbol 'B' (--batch B=N)
// BUDGET: error: the peak of 32 bytes exceeds the budget of 31 bytes
// SIZE: error: budget=many: 'many': write a number with an optional unit
// OUTPUT: error: {{.*}}absent
func.func private @declared()
func.func @a(%x: tensor<?xf32> {koila.name = "x", koila.dims = #koila.dims<[B]>}) {
  %0 = koila.relu %x : (tensor<?xf32>) -> tensor<?xf32>
  return
}
func.func @b(%x: tensor<8xf32> {koila.name = "x"}) {
  %0 = koila.relu %x : (tensor<8xf32>) -> tensor<8xf32>
  return
}
