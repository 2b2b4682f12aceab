from sluice_train import sluice

sluice()
