print("bindrune")
