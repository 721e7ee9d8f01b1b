"""Page layouts of file versions 2.1 and 2.2: mini-block, full-zip, constant and blob pages."""
