def report(x):
    return ""
