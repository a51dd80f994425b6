namespace switchyard {}
